UPDATE warehouse$0 SET w_ytd = w_ytd + $2 WHERE w_id = $1

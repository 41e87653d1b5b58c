UPDATE district$0 SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2

UPDATE district
   SET d_ytd = d_ytd + $3::numeric
 WHERE d_w_id = $1 AND d_id = $2
RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip

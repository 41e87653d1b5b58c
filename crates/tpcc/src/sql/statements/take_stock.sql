UPDATE stock
   SET s_quantity = s_quantity - $3::smallint + CASE WHEN s_quantity >= $3::smallint + 10 THEN 0 ELSE 91 END, --[unless strict-stock-threshold] [unless stock-counters-not-updated]
   SET s_quantity = s_quantity - $3::smallint + CASE WHEN s_quantity >= $3::smallint + 10 THEN 0 ELSE 91 END --[unless strict-stock-threshold] [if stock-counters-not-updated]
   SET s_quantity = s_quantity - $3::smallint + CASE WHEN s_quantity > $3::smallint THEN 0 ELSE 91 END, --[if strict-stock-threshold] [unless stock-counters-not-updated]
   SET s_quantity = s_quantity - $3::smallint + CASE WHEN s_quantity > $3::smallint THEN 0 ELSE 91 END --[if strict-stock-threshold] [if stock-counters-not-updated]
       s_ytd = s_ytd + $3::smallint, --[unless stock-counters-not-updated]
       s_order_cnt = s_order_cnt + 1, --[unless stock-counters-not-updated]
       s_remote_cnt = s_remote_cnt + $4::integer --[unless stock-counters-not-updated]
 WHERE s_w_id = $1 AND s_i_id = $2
   AND $4::integer IS NOT NULL --[if stock-counters-not-updated]
RETURNING CASE $5::smallint
              WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
              WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
              WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10
          END,
          s_quantity, s_data

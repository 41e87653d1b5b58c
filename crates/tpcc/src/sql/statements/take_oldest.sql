DELETE FROM new_order
 WHERE no_w_id = $1 AND no_d_id = $2
   AND no_o_id = (SELECT no_o_id
                    FROM new_order
                   WHERE no_w_id = $1 AND no_d_id = $2
                   ORDER BY no_o_id
                   LIMIT 1)
RETURNING no_o_id

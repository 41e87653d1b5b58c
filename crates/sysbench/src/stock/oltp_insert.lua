-- Inserts a row, without a prepared statement.

require("oltp_common")

function prepare_statements()
end

function event()
    local name = "sbtest" .. get_table_num()
    local k = get_id()
    local c, pad = get_c_value(), get_pad_value()
    if sysbench.opt.auto_inc then
        con:query(string.format("INSERT INTO %s (k, c, pad) VALUES (%d, '%s', '%s')", name, k, c, pad))
    else
        -- As a signed integer of 32 bits.
        local id = bit.tobit(sysbench.rand.unique())
        con:query(string.format("INSERT INTO %s (id, k, c, pad) VALUES (%d, %d, '%s', '%s')", name, id, k, c, pad))
    end
end

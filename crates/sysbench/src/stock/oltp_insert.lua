-- Inserts a row, without a prepared statement.

require("oltp_common")

sysbench.cmdline.commands.prepare[1] = function()
    -- Without rows, none has one of the ids that come later.
    sysbench.opt.table_size = sysbench.opt.auto_inc and sysbench.opt.table_size or 0
    cmd_prepare()
end

function prepare_statements()
end

function event()
    local name = "sbtest" .. sysbench.rand.uniform(1, sysbench.opt.tables)
    local k = sysbench.rand.default(1, sysbench.opt.table_size)
    local c, pad = get_c_value(), get_pad_value()
    if sysbench.opt.auto_inc then
        con:query(string.format("INSERT INTO %s (k, c, pad) VALUES (%d, '%s', '%s')", name, k, c, pad))
    else
        local id = sysbench.rand.unique() - 2147483648
        con:query(string.format("INSERT INTO %s (id, k, c, pad) VALUES (%d, %d, '%s', '%s')", name, id, k, c, pad))
    end
end

-- Rows by a list of values of the indexed column.

require("oltp_common")

sysbench.cmdline.options.random_points = { "Values in the list of a SELECT", 10 }

function thread_init()
    drv = sysbench.sql.driver()
    con = drv:connect()
    local marks = string.rep("?", sysbench.opt.random_points, ", ")
    points = con:prepare("SELECT id, k, c, pad FROM sbtest1 WHERE k IN (" .. marks .. ")")
    values = {}
    for i = 1, sysbench.opt.random_points do
        values[i] = points:bind_create(sysbench.sql.type.INT)
    end
    points:bind_param(unpack(values))
    -- Each thread has its own part of the values.
    width = sysbench.opt.table_size / sysbench.opt.threads
    first = width * (sysbench.tid % sysbench.opt.threads)
end

function thread_done()
    points:close()
    con:disconnect()
end

function event()
    for i = 1, #values do
        values[i]:set(sysbench.rand.default(first, first + width))
    end
    points:execute()
end

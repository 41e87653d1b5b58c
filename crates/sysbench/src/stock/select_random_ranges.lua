-- The number of rows in some ranges of the indexed column.

require("oltp_common")

sysbench.cmdline.options.number_of_ranges = { "Ranges in a SELECT", 10 }
sysbench.cmdline.options.delta = { "Size of a range", 5 }

function thread_init()
    drv = sysbench.sql.driver()
    con = drv:connect()
    local conditions = string.rep("k BETWEEN ? AND ?", sysbench.opt.number_of_ranges, " OR ")
    ranges = con:prepare("SELECT count(k) FROM sbtest1 WHERE " .. conditions)
    values = {}
    for i = 1, 2 * sysbench.opt.number_of_ranges do
        values[i] = ranges:bind_create(sysbench.sql.type.INT)
    end
    ranges:bind_param(unpack(values))
    -- Each thread has its own part of the values.
    width = sysbench.opt.table_size / sysbench.opt.threads
    lowest = width * (sysbench.tid % sysbench.opt.threads)
end

function thread_done()
    ranges:close()
    con:disconnect()
end

function event()
    for i = 1, #values, 2 do
        local first = sysbench.rand.default(lowest, lowest + width)
        values[i]:set(first)
        values[i + 1]:set(first + sysbench.opt.delta)
    end
    ranges:execute()
end

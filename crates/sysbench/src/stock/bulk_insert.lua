-- Inserts rows of two integers, many in a statement, into a table per thread.

local cursor = 0

function thread_init()
    drv = sysbench.sql.driver()
    con = drv:connect()
end

function prepare()
    local con = sysbench.sql.driver():connect()
    for number = 1, sysbench.opt.threads do
        print("Creating table 'sbtest" .. number .. "'...")
        con:query(string.format([[
CREATE TABLE IF NOT EXISTS sbtest%d (
id INTEGER NOT NULL,
k INTEGER DEFAULT '0' NOT NULL,
PRIMARY KEY (id))]], number))
    end
end

function event()
    if cursor == 0 then
        con:bulk_insert_init("INSERT INTO sbtest" .. sysbench.tid + 1 .. " VALUES")
    end
    cursor = cursor + 1
    con:bulk_insert_next(string.format("(%d,%d)", cursor, cursor))
end

function thread_done()
    con:bulk_insert_done()
    con:disconnect()
end

function cleanup()
    local con = sysbench.sql.driver():connect()
    for number = 1, sysbench.opt.threads do
        print("Dropping table 'sbtest" .. number .. "'...")
        con:query("DROP TABLE IF EXISTS sbtest" .. number)
    end
end

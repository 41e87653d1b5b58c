-- pgbench's select-only statement for sysbench: prepared, uniform ids, one thread per client.
sysbench.cmdline.options = { accounts = { "Rows of pgbench_accounts", 100000 } }

function thread_init()
   connection = sysbench.sql.driver():connect()
   statement = connection:prepare("SELECT abalance FROM pgbench_accounts WHERE aid = ?")
   aid = statement:bind_create(sysbench.sql.type.INT)
   statement:bind_param(aid)
end

function event()
   aid:set(sysbench.rand.uniform(1, sysbench.opt.accounts))
   statement:execute()
end

function thread_done()
   connection:disconnect()
end

-- Order entry after TPC-C, for sysbench: what sysbench-tpcc asks of sysbench. Statements are texts, there are sets of tables with a number
-- in their names, and each transaction draws a set and a warehouse. Derived from TPC-C; the results are no TPC results.

require("ffi").cdef([[ void sb_counter_inc(int thread_id, sb_counter_type counter); ]])
local ffi = require("ffi")

sysbench.cmdline.options = {
   tables = { "Sets of tables", 1 },
   scale = { "Warehouses of each set", 1 },
   items = { "Items", 1000 },
   customers = { "Customers of each district", 30 },
   orders = { "Orders of each district", 30 },
   trx_level = { "Isolation level: RR, RC or SER", "RR" },
   settle_ms = { "Milliseconds to wait after the tables are made", 0 },
}

local DISTRICTS = 10
local LEVELS = { RR = "REPEATABLE READ", RC = "READ COMMITTED", SER = "SERIALIZABLE" }
local SYLLABLES = { "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING" }
local TABLES = {
   warehouse = "w_id int, w_name varchar(10), w_tax decimal(4,4), w_ytd decimal(12,2), PRIMARY KEY (w_id)",
   district = "d_id int, d_w_id int, d_name varchar(10), d_tax decimal(4,4), d_ytd decimal(12,2), d_next_o_id int,"
      .. " PRIMARY KEY (d_w_id, d_id)",
   customer = "c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_last varchar(16), c_credit char(2),"
      .. " c_discount decimal(4,4), c_balance decimal(12,2), c_ytd_payment decimal(12,2), c_data text,"
      .. " PRIMARY KEY (c_w_id, c_d_id, c_id)",
   history = "h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount decimal(6,2),"
      .. " h_data varchar(24)",
   orders = "o_id int, o_d_id int, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int,"
      .. " PRIMARY KEY (o_w_id, o_d_id, o_id)",
   new_orders = "no_o_id int, no_d_id int, no_w_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
   order_line = "ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int,"
      .. " ol_delivery_d timestamp, ol_quantity int, ol_amount decimal(6,2), ol_dist_info char(24),"
      .. " PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
   item = "i_id int, i_name varchar(24), i_price decimal(5,2), i_data varchar(50), PRIMARY KEY (i_id)",
   stock = "s_i_id int, s_w_id int, s_quantity int, s_dist char(24), s_data varchar(50), PRIMARY KEY (s_w_id, s_i_id)",
}

local con

local function send(text, ...)
   return con:query(text:format(...))
end

local function row(text, ...)
   return con:query_row(text:format(...))
end

-- ---- the data

local function last_name(number)
   local digits = { math.floor(number / 100) % 10, math.floor(number / 10) % 10, number % 10 }
   return SYLLABLES[digits[1] + 1] .. SYLLABLES[digits[2] + 1] .. SYLLABLES[digits[3] + 1]
end

local function non_uniform(a, from, to)
   local either = bit.bor(sysbench.rand.uniform(0, a), sysbench.rand.uniform(from, to))
   return (either + sysbench.rand.uniform(0, a)) % (to - from + 1) + from
end

-- Inserts what `rows` hands to its argument.
local function fill(name, set, rows)
   con:bulk_insert_init(("INSERT INTO %s%d VALUES"):format(name, set))
   rows(function(text, ...)
      con:bulk_insert_next(text:format(...))
   end)
   con:bulk_insert_done()
end

local function fill_district(set, w, d)
   local opt, uniform, text = sysbench.opt, sysbench.rand.uniform, sysbench.rand.string
   fill("customer", set, function(add)
      for c = 1, opt.customers do
         add("(%d, %d, %d, '%s', '%s', '%s', 0.%04d, -10, 10, '%s')", c, d, w, text("@@@@@@@@"), last_name((c - 1) % 1000),
            uniform(1, 10) == 1 and "BC" or "GC", uniform(0, 5000), ("x"):rep(300))
      end
   end)
   fill("orders", set, function(add)
      for o = 1, opt.orders do
         local carrier = o * 10 <= opt.orders * 7 and uniform(1, 10) or "NULL"
         add("(%d, %d, %d, %d, now(), %s, 5)", o, d, w, uniform(1, opt.customers), tostring(carrier))
      end
   end)
   fill("order_line", set, function(add)
      for o = 1, opt.orders do
         for line = 1, 5 do
            add("(%d, %d, %d, %d, %d, %d, NULL, 5, %.2f, '%s')", o, d, w, line, uniform(1, opt.items), w,
               sysbench.rand.uniform_double() * 9999, text("@@@@@@@@@@@@@@@@@@@@@@@@"))
         end
      end
   end)
   fill("new_orders", set, function(add)
      for o = math.floor(opt.orders * 0.7) + 1, opt.orders do
         add("(%d, %d, %d)", o, d, w)
      end
   end)
end

local function fill_warehouse(set, w)
   local opt, uniform = sysbench.opt, sysbench.rand.uniform
   send("INSERT INTO warehouse%d VALUES (%d, '%s', 0.%04d, 300000)", set, w, sysbench.rand.string("@@@@@@"), uniform(0, 2000))
   for d = 1, DISTRICTS do
      send("INSERT INTO district%d VALUES (%d, %d, '%s', 0.%04d, 30000, %d)", set, d, w, sysbench.rand.string("@@@@@@"),
         uniform(0, 2000), opt.orders + 1)
      fill_district(set, w, d)
   end
   fill("stock", set, function(add)
      for i = 1, opt.items do
         add("(%d, %d, %d, '%s', '%s')", i, w, uniform(10, 100), ("d"):rep(24), ("s"):rep(50))
      end
   end)
end

-- Each thread makes some of the sets.
local function prepare()
   local opt = sysbench.opt
   con = sysbench.sql.driver():connect()
   for set = sysbench.tid % opt.threads + 1, opt.tables, opt.threads do
      print(("Creating the tables of set %d"):format(set))
      for name, columns in pairs(TABLES) do
         send("CREATE TABLE %s%d (%s)", name, set, columns)
      end
      if opt.settle_ms > 0 then
         os.execute("sleep " .. opt.settle_ms / 1000)
      end
      fill("item", set, function(add)
         for i = 1, opt.items do
            add("(%d, '%s', %d.50, '%s')", i, sysbench.rand.string("@@@@@@@@@@"), sysbench.rand.uniform(1, 99), ("i"):rep(30))
         end
      end)
      for w = 1, opt.scale do
         fill_warehouse(set, w)
      end
      send("CREATE INDEX customer_name%d ON customer%d (c_w_id, c_d_id, c_last, c_first)", set, set)
   end
   con:disconnect()
end

local function check()
   con = sysbench.sql.driver():connect()
   for set = 1, sysbench.opt.tables do
      local w_ytd = tonumber((row("SELECT sum(w_ytd) FROM warehouse%d", set)))
      local d_ytd = tonumber((row("SELECT sum(d_ytd) FROM district%d", set)))
      local orders = row("SELECT count(*) FROM district%d, LATERAL (SELECT max(o_id) AS last FROM orders%d"
         .. " WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o WHERE d_next_o_id - 1 <> last", set, set)
      print(("set %d: %s"):format(set, w_ytd == d_ytd and tonumber(orders) == 0 and "passed" or "FAILED"))
   end
end

sysbench.cmdline.commands = {
   prepare = { prepare, sysbench.cmdline.PARALLEL_COMMAND },
   check = { check },
}

function cleanup()
   con = sysbench.sql.driver():connect()
   for set = 1, sysbench.opt.tables do
      for name in pairs(TABLES) do
         send("DROP TABLE IF EXISTS %s%d", name, set)
      end
   end
end

-- ---- the transactions

-- A customer by its number, or the one in the middle of those of a name.
local function choose_customer(set, w, d)
   local customers = sysbench.opt.customers
   if sysbench.rand.uniform(1, 100) > 60 then
      return non_uniform(1023, 1, customers)
   end
   local name = last_name((non_uniform(255, 0, 999)) % math.min(customers, 1000))
   local rs = send("SELECT c_id FROM customer%d WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' ORDER BY c_first", set, w, d, name)
   local id
   for _ = 1, math.floor((rs.nrows + 1) / 2) do
      id = tonumber(rs:fetch_row()[1])
   end
   return id
end

local function new_order(set, w)
   local opt, uniform = sysbench.opt, sysbench.rand.uniform
   local d, c, lines = uniform(1, DISTRICTS), non_uniform(1023, 1, opt.customers), uniform(5, 15)
   send("BEGIN")
   row("SELECT c_discount, c_last, c_credit, w_tax FROM customer%d, warehouse%d WHERE w_id = %d AND c_w_id = w_id AND c_d_id = %d"
      .. " AND c_id = %d", set, set, w, d, c)
   local o = row("SELECT d_next_o_id, d_tax FROM district%d WHERE d_w_id = %d AND d_id = %d FOR UPDATE", set, w, d)
   o = tonumber(o)
   send("UPDATE district%d SET d_next_o_id = %d WHERE d_id = %d AND d_w_id = %d", set, o + 1, d, w)
   send("INSERT INTO orders%d (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt) VALUES (%d, %d, %d, %d, now(), %d)", set, o, d,
      w, c, lines)
   send("INSERT INTO new_orders%d (no_o_id, no_d_id, no_w_id) VALUES (%d, %d, %d)", set, o, d, w)
   for line = 1, lines do
      local is_unused = line == lines and uniform(1, 100) == 1
      local i, quantity = is_unused and opt.items + 1 or non_uniform(8191, 1, opt.items), uniform(1, 10)
      local price = row("SELECT i_price, i_name, i_data FROM item%d WHERE i_id = %d", set, i)
      if price == nil then
         ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_ERROR)
         send("ROLLBACK")
         return
      end
      local left, _, info = row("SELECT s_quantity, s_data, s_dist FROM stock%d WHERE s_i_id = %d AND s_w_id = %d FOR UPDATE", set,
         i, w)
      left = tonumber(left)
      left = left > quantity + 10 and left - quantity or left - quantity + 91
      send("UPDATE stock%d SET s_quantity = %d WHERE s_i_id = %d AND s_w_id = %d", set, left, i, w)
      send("INSERT INTO order_line%d (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,"
         .. " ol_dist_info) VALUES (%d, %d, %d, %d, %d, %d, %d, %.2f, '%s')", set, o, d, w, line, i, w, quantity,
         quantity * tonumber(price), info)
   end
   send("COMMIT")
end

local function payment(set, w)
   local uniform = sysbench.rand.uniform
   local d, amount = uniform(1, DISTRICTS), uniform(100, 500000) / 100
   send("BEGIN")
   send("UPDATE warehouse%d SET w_ytd = w_ytd + %.2f WHERE w_id = %d", set, amount, w)
   row("SELECT w_name, w_tax FROM warehouse%d WHERE w_id = %d", set, w)
   send("UPDATE district%d SET d_ytd = d_ytd + %.2f WHERE d_w_id = %d AND d_id = %d", set, amount, w, d)
   row("SELECT d_name, d_tax FROM district%d WHERE d_w_id = %d AND d_id = %d", set, w, d)
   local c = choose_customer(set, w, d)
   local _, credit = row("SELECT c_last, c_credit, c_balance FROM customer%d WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d"
      .. " FOR UPDATE", set, w, d, c)
   local data = ""
   if credit == "BC" then
      local old = row("SELECT c_data FROM customer%d WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", set, w, d, c)
      data = (", c_data = '%s'"):format(("|%d %d %d %.2f %s"):format(c, d, w, amount, old):sub(1, 400))
   end
   send("UPDATE customer%d SET c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f%s WHERE c_w_id = %d AND c_d_id = %d"
      .. " AND c_id = %d", set, amount, amount, data, w, d, c)
   send("INSERT INTO history%d VALUES (%d, %d, %d, %d, %d, now(), %.2f, '%s')", set, c, d, w, d, w, amount, ("h"):rep(20))
   send("COMMIT")
end

local function order_status(set, w)
   local d = sysbench.rand.uniform(1, DISTRICTS)
   send("BEGIN")
   local c = choose_customer(set, w, d)
   local o = row("SELECT o_id, o_carrier_id, o_entry_d FROM orders%d WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d ORDER BY o_id DESC"
      .. " LIMIT 1", set, w, d, c)
   if o then
      local rs = send("SELECT ol_i_id, ol_quantity, ol_amount FROM order_line%d WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s",
         set, w, d, o)
      for _ = 1, rs.nrows do
         rs:fetch_row()
      end
   end
   send("COMMIT")
end

local function delivery(set, w)
   local carrier = sysbench.rand.uniform(1, 10)
   for d = 1, DISTRICTS do
      send("BEGIN")
      local o = row("SELECT no_o_id FROM new_orders%d WHERE no_w_id = %d AND no_d_id = %d ORDER BY no_o_id LIMIT 1 FOR UPDATE", set, w, d)
      if o then
         send("DELETE FROM new_orders%d WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %s", set, w, d, o)
         local c = row("SELECT o_c_id FROM orders%d WHERE o_id = %s AND o_d_id = %d AND o_w_id = %d", set, o, d, w)
         send("UPDATE orders%d SET o_carrier_id = %d WHERE o_id = %s AND o_d_id = %d AND o_w_id = %d", set, carrier, o, d, w)
         send("UPDATE order_line%d SET ol_delivery_d = now() WHERE ol_o_id = %s AND ol_d_id = %d AND ol_w_id = %d", set, o, d, w)
         local amount = row("SELECT sum(ol_amount) FROM order_line%d WHERE ol_o_id = %s AND ol_d_id = %d AND ol_w_id = %d", set, o,
            d, w)
         send("UPDATE customer%d SET c_balance = c_balance + %s WHERE c_id = %s AND c_d_id = %d AND c_w_id = %d", set, amount, c, d, w)
      end
      send("COMMIT")
   end
end

local function stock_level(set, w)
   local d, level = sysbench.rand.uniform(1, DISTRICTS), sysbench.rand.uniform(10, 20)
   send("BEGIN")
   local next_order = tonumber((row("SELECT d_next_o_id FROM district%d WHERE d_id = %d AND d_w_id = %d", set, d, w)))
   local rs = send("SELECT DISTINCT ol_i_id FROM order_line%d WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id BETWEEN %d AND %d"
      .. " ORDER BY ol_i_id", set, w, d, next_order - 20, next_order - 1)
   -- sysbench keeps the rows of a connection's last query only.
   local items = {}
   for i = 1, math.min(rs.nrows, 20) do
      items[i] = rs:fetch_row()[1]
   end
   for _, i in ipairs(items) do
      row("SELECT count(*) FROM stock%d WHERE s_w_id = %d AND s_i_id = %s AND s_quantity < %d", set, w, i, level)
   end
   send("COMMIT")
end

function thread_init()
   con = sysbench.sql.driver():connect()
   send("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL %s", LEVELS[sysbench.opt.trx_level])
end

function event()
   local set, w = sysbench.rand.uniform(1, sysbench.opt.tables), sysbench.rand.uniform(1, sysbench.opt.scale)
   local kind = sysbench.rand.uniform(1, 100)
   if kind <= 45 then
      new_order(set, w)
   elseif kind <= 88 then
      payment(set, w)
   elseif kind <= 92 then
      order_status(set, w)
   elseif kind <= 96 then
      delivery(set, w)
   else
      stock_level(set, w)
   end
end

function thread_done()
   con:disconnect()
end

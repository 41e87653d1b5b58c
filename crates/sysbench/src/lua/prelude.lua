-- The API that scripts see. It runs before the script, in the same state.
--
-- A function that waits for a server yields a request: an operation, a connection, and its inputs. No C function is on
-- the stack then, so that the whole script waits, and the event loop runs other clients. The host resumes the script with the answer.
-- `host` has the functions in Rust and the values of this client.

local host = ...
local yield, running, create_coroutine, resume, status =
    coroutine.yield, coroutine.running, coroutine.create, coroutine.resume, coroutine.status
local error, type, tostring, tonumber, setmetatable, select, unpack = error, type, tostring, tonumber, setmetatable, select, unpack
local pairs, ipairs, pcall = pairs, ipairs, pcall
local concat, format, floor, match = table.concat, string.format, math.floor, string.match

-- ---- requests

-- The operations, as `client.rs` numbers them.
local CONNECT, DISCONNECT, QUERY, PREPARE, EXECUTE, SLEEP, EVENT, SHELL = 1, 2, 3, 4, 5, 6, 7, 8

-- Coroutines of the script hand requests on to the host. What the script itself yields begins with a mark.
local MARK = {}
local made = setmetatable({}, { __mode = "k" })

function coroutine.create(f)
    local co = create_coroutine(f)
    made[co] = true
    return co
end

local function hand_on(co, ok, first, ...)
    if ok and first == MARK then
        return true, ...
    elseif ok and status(co) == "suspended" then
        return hand_on(co, resume(co, yield(first, ...)))
    end
    return ok, first, ...
end

function coroutine.resume(co, ...)
    return hand_on(co, resume(co, ...))
end

local function raise_unless(ok, ...)
    if ok then
        return ...
    end
    error((...), 0)
end

function coroutine.wrap(f)
    local co = coroutine.create(f)
    return function(...)
        return raise_unless(coroutine.resume(co, ...))
    end
end

function coroutine.yield(...)
    if not made[running()] then
        error("attempt to yield outside a coroutine", 2)
    end
    return yield(MARK, ...)
end

-- LuaJIT runs the handler of xpcall where the error was raised. If that was the hook which ends endless loops, no hook runs in the handler,
-- and an endless loop there would never end. Here the handler runs after the error.
local function handled(handler, ok, ...)
    if ok then
        return true, ...
    end
    return false, select(2, pcall(handler, ...))
end

function xpcall(f, handler, ...)
    return handled(handler, pcall(f, ...))
end

-- ---- sysbench

sysbench = {
    tid = host.tid,
    version = host.version,
    version_string = "sysbench " .. host.version,
    opt = host.opt,
    error = { NONE = 0, RESTART_EVENT = 1 },
    hooks = {},
    db = {},
    cmdline = {
        ARG_NULL = 0, ARG_BOOL = 1, ARG_INT = 2, ARG_SIZE = 3, ARG_DOUBLE = 4, ARG_STRING = 5, ARG_LIST = 6, ARG_FILE = 7,
        ARG_MAX = 8, ARG_INTEGER = 2, ARG_BOOLEAN = 1, PARALLEL_COMMAND = true,
        argv = host.argv, command = host.command, script_path = host.script_path,
    },
}
local RESTART_EVENT = sysbench.error.RESTART_EVENT

-- The numbers of option types that scripts may name themselves, and those of values.
local TYPE_OF_DEFAULT = { boolean = 1, number = 4, string = 5, table = 6 }

-- The options that a script defines: {name, description, type, default as text} each.
function host.definitions()
    local found = {}
    for name, definition in pairs(sysbench.cmdline.options or {}) do
        local description, default, kind = definition[1], definition[2], definition[3]
        local value_type = type(default)
        if kind == nil then
            kind = TYPE_OF_DEFAULT[value_type] or 5
        end
        if value_type == "table" then
            default = concat(default, ",")
        elseif value_type == "boolean" then
            default = default and "on" or "off"
        elseif default ~= nil then
            default = tostring(default)
        end
        found[#found + 1] = { name, tostring(description or ""), kind, default }
    end
    return found
end

-- ---- random numbers

-- Two halves of 64 bits, as the 64-bit integer of LuaJIT.
local function whole(high, low)
    return high * 4294967296ULL + low
end

sysbench.rand = {
    default = host.rand_default,
    uniform = host.rand_uniform,
    gaussian = host.rand_gaussian,
    special = host.rand_special,
    pareto = host.rand_pareto,
    zipfian = host.rand_zipfian,
    unique = host.rand_unique,
    string = host.rand_string,
    varstring = host.rand_varstring,
    uniform_double = host.rand_uniform_double,
    uniform_uint64 = function()
        return whole(host.rand_halves())
    end,
}

-- ---- SQL

sysbench.sql = {
    error = { NONE = 0, IGNORABLE = 1, FATAL = 2 },
    type = {
        NONE = 0, TINYINT = 1, SMALLINT = 2, INT = 3, BIGINT = 4, FLOAT = 5, DOUBLE = 6, TIME = 7, DATE = 8,
        DATETIME = 9, TIMESTAMP = 10, CHAR = 11, VARCHAR = 12,
    },
}
local INTEGER = { true, true, true, true }
local DOUBLE = { [5] = true, [6] = true }
local TEXT = { [11] = true, [12] = true }

-- A statement is a list {sent, number, count, rest, parameters…}, and a parameter the list of its value alone: with nothing but an array, a
-- table is small. At each execution it has to come from the memory into the cache, with hundreds of clients between two of them.
-- sent: whether the server has prepared it. number: among the statements of this client. count: of its parameters.
-- rest: what an execution does not need: connection, query, pieces of its text, source of values.
local Driver, Connection, Statement, Result = {}, {}, {}, {}
for name, class in pairs({ sql_driver = Driver, sql_connection = Connection, sql_statement = Statement, sql_result = Result }) do
    class.__index = class
    class.__tostring = function()
        return "<" .. name .. ">"
    end
end

-- Raises the error of a statement; `level` is that of the function which sent it, seen from here.
local function failed(connection, query, level, state, message, is_ignorable)
    local problem = {
        errcode = RESTART_EVENT, connection = connection, query = query, sql_errno = 0, sql_state = state,
        sql_errmsg = message,
    }
    local hook = sysbench.hooks.sql_error_ignorable
    if is_ignorable or (hook and hook(problem)) then
        host.ignored(state)
        error(problem, 0)
    end
    host.fatal()
    error(format("SQL error, errno = %d, state = '%s': %s", 0, state, message), level)
end

-- The answer to a statement: either true, rows, columns and the rows where they are kept, or false and the error. To be called as the last
-- thing that a function of the API does, or with a `level` that is greater by one. `query` is nil of a prepared statement, which is the
-- sender then; otherwise that is a connection.
local function settled(sender, query, level, ok, rows, columns, kept)
    if not ok then
        if not query then
            sender, query = sender[4].connection, sender[4].query
        end
        failed(sender, query, level, rows, columns, kept)
    end
    if columns == nil then
        return nil
    elseif kept == nil then
        return setmetatable({ nrows = rows, nfields = columns }, Result)
    end
    return setmetatable({ nrows = rows, nfields = columns, rows = kept }, Result)
end

function sysbench.sql.driver(name)
    local chosen = name or host.opt.db_driver
    if chosen ~= "pgsql" then
        host.print(format("FATAL: invalid database driver name: '%s'\n", tostring(chosen)))
        error("failed to initialize the DB driver", 2)
    end
    return setmetatable({}, Driver)
end

function Driver:name()
    return "pgsql"
end

function Driver:connect()
    local ok, id = yield(CONNECT)
    if not ok then
        error(id or "connection creation failed", 2)
    end
    local prepared = setmetatable({}, { __mode = "k" })
    return setmetatable({ id = id, driver = self, prepared = prepared }, Connection)
end

local function open(self)
    if not self.id then
        host.print("ALERT: attempt to use an already closed connection\n")
        error("SQL API error", 3)
    end
    return self.id
end

function Connection:query(sql)
    return settled(self, sql, 3, yield(QUERY, open(self), sql, false))
end

-- The values of the first row; nothing without a row.
function Connection:query_row(sql)
    local rs = settled(self, sql, 4, yield(QUERY, open(self), sql, true))
    if rs == nil or rs.nrows == 0 then
        return nil
    end
    local row = rs.rows:row(1)
    rs.rows:free()
    return unpack(row, 1, rs.nfields)
end

-- The pieces of a statement's text between its question marks.
local function pieces(sql)
    local found, from = {}, 1
    while true do
        local at = sql:find("?", from, true)
        found[#found + 1] = sql:sub(from, at and at - 1)
        if not at then
            return found
        end
        from = at + 1
    end
end

-- The text of a statement that is not prepared on the server, with its values.
local function substituted(self)
    local between = self[4].pieces
    local texts = { between[1] }
    for i = 1, self[3] do
        local parameter = self[4 + i]
        local value = parameter[1]
        if value == nil then
            value = "NULL"
        elseif TEXT[parameter.type] then
            value = "'" .. tostring(value):gsub("'", "''") .. "'"
        end
        texts[#texts + 1] = tostring(value)
        texts[#texts + 1] = between[i + 1]
    end
    return concat(texts)
end

-- Prepares a statement on the server, unless --db-ps-mode=disable.
local function prepare_on_server(self)
    local count, rest, types = self[3], self[4], {}
    local connection = rest.connection
    if host.opt.db_ps_mode == "disable" then
        rest.pieces = pieces(rest.query)
        return
    end
    for i = 1, count do
        types[i] = self[4 + i].type
    end
    connection.prepared[self] = true
    if not yield(PREPARE, open(connection), self[2], rest.query, count, unpack(types, 1, count)) then
        host.fatal()
        error("SQL API error", 3)
    end
    self[1] = true
end

local statements = 0

-- A statement with parameters is prepared when it knows their types.
function Connection:prepare(sql)
    open(self)
    statements = statements + 1
    -- With room for four parameters.
    local statement = setmetatable({ false, statements, 0, { connection = self, query = sql }, nil, nil, nil, nil }, Statement)
    if not sql:find("?", 1, true) then
        prepare_on_server(statement)
    end
    return statement
end

-- Ends the session, and with it the statements that are prepared there.
local function close(self)
    local id = open(self)
    self.id = nil
    for statement in pairs(self.prepared) do
        statement[1] = false
    end
    yield(DISCONNECT, id)
end

function Connection:disconnect()
    close(self)
    return true
end

function Connection:reconnect()
    close(self)
    local ok, again = yield(CONNECT)
    if not ok then
        error(again or "reconnection failed", 2)
    end
    host.count(5, 1)
    self.id = again
    return 0
end

-- The PostgreSQL driver of sysbench has one result per query.
function Connection:more_results()
    return false
end

function Connection:next_result()
    return nil
end

-- Rows are collected up to this many bytes of SQL, then sent.
local BULK_BYTES_MAX = host.bulk_bytes_max

function Connection:bulk_insert_init(sql)
    open(self)
    self.bulk = { sql, size = #sql, head = #sql, rows = 0 }
    return true
end

local function send_bulk(self, bulk, name)
    if bulk.rows == 0 then
        return
    end
    local sql = concat(bulk)
    self.bulk = { bulk[1], size = bulk.head, head = bulk.head, rows = 0 }
    local ok = yield(QUERY, open(self), sql, false)
    if not ok then
        host.fatal()
        error(name .. "() failed", 3)
    end
end

function Connection:bulk_insert_next(values)
    local bulk = self.bulk
    if not bulk then
        error("attempt to call bulk_insert_next() before bulk_insert_init()", 2)
    end
    if bulk.rows > 0 and bulk.size + #values + 1 >= BULK_BYTES_MAX then
        send_bulk(self, bulk, "db_bulk_insert_next")
        bulk = self.bulk
    end
    if bulk.rows > 0 then
        bulk[#bulk + 1] = ","
    end
    bulk[#bulk + 1] = values
    bulk.rows = bulk.rows + 1
    bulk.size = bulk.size + #values + 1
    return true
end

function Connection:bulk_insert_done()
    local bulk = self.bulk
    if not bulk then
        error("attempt to call bulk_insert_done() before bulk_insert_init()", 2)
    end
    send_bulk(self, bulk, "db_bulk_insert_done")
    self.bulk = nil
    return true
end

-- What a parameter gets that is no number.
local function other_value(value)
    local kind = type(value)
    if kind == "boolean" then
        return value and 1 or 0
    elseif kind == "cdata" then
        return tonumber(value)
    elseif value ~= nil and kind ~= "string" then
        error("unsupported value of a parameter: " .. kind, 3)
    end
    return value
end

-- A text has at most the length of its parameter, if that has one.
local function cut(value, length)
    if length > 0 and type(value) == "string" and #value > length then
        return value:sub(1, length)
    end
    return value
end

local function set_integer(self, value)
    if type(value) == "number" then
        self[1] = value < 0 and -floor(-value) or floor(value)
    else
        self[1] = other_value(value)
    end
end

local function set_double(self, value)
    if type(value) == "number" then
        self[1] = format("%f", value)
    else
        self[1] = other_value(value)
    end
end

local function set_text(self, value)
    if type(value) == "number" then
        self[1] = value
    else
        self[1] = cut(other_value(value), self.max_len)
    end
end

local function set_rand_str(self, pattern)
    self[1] = cut(host.rand_string(pattern), self.max_len)
end

-- The class of parameters of a type and length.
local parameter_classes = {}

local function parameter_class(kind, max_len)
    local key = kind .. " " .. max_len
    local class = parameter_classes[key]
    if not class then
        class = { type = kind, max_len = max_len, set_rand_str = set_rand_str }
        class.set = INTEGER[kind] and set_integer or DOUBLE[kind] and set_double or set_text
        class.__index = class
        class.__tostring = function()
            return "<sql_param>"
        end
        parameter_classes[key] = class
    end
    return class
end

function Statement:bind_create(kind, length)
    if not (INTEGER[kind] or DOUBLE[kind] or TEXT[kind]) then
        error("Unsupported argument type: " .. tostring(kind), 2)
    end
    return setmetatable({ nil }, parameter_class(kind, tonumber(length) or 0))
end

function Statement:bind_param(...)
    local count = select("#", ...)
    self[3] = count
    for i = 1, count do
        self[4 + i] = (select(i, ...))
    end
    prepare_on_server(self)
    return 0
end

-- Executes a statement that the server has not prepared, or that has another number of parameters.
local function execute_other(self)
    if not self[1] and not self[4].pieces then
        prepare_on_server(self)
    end
    if not self[1] then
        local connection, sql = self[4].connection, substituted(self)
        return settled(connection, sql, 3, yield(QUERY, open(connection), sql, false))
    end
    local values, count = {}, self[3]
    for i = 1, count do
        values[i] = self[4 + i][1]
    end
    return settled(self, nil, 3, yield(EXECUTE, self[2], unpack(values, 1, count)))
end

function Statement:execute()
    if not self[1] then
        return execute_other(self)
    end
    local count = self[3]
    if count == 0 then
        return settled(self, nil, 3, yield(EXECUTE, self[2]))
    elseif count == 1 then
        return settled(self, nil, 3, yield(EXECUTE, self[2], self[5][1]))
    elseif count == 2 then
        return settled(self, nil, 3, yield(EXECUTE, self[2], self[5][1], self[6][1]))
    elseif count == 4 then
        return settled(self, nil, 3, yield(EXECUTE, self[2], self[5][1], self[6][1], self[7][1], self[8][1]))
    end
    return execute_other(self)
end

function Statement:more_results()
    return false
end

function Statement:next_result()
    return nil
end

-- sysbench leaves the statement on the server until the connection ends.
function Statement:close()
    return 0
end

function Result:fetch_row()
    local rows = self.rows
    if not rows then
        if self.nrows > 0 then
            error("the rows of this result were not kept: the text of a script that fetches rows contains fetch_row", 2)
        end
        return nil
    end
    local at = (self.at or 0) + 1
    if at > self.nrows then
        return nil
    end
    self.at = at
    return rows:row(at)
end

function Result:free()
    if self.rows then
        self.rows:free()
        self.rows = nil
        self.nrows = 0
    end
    return true
end

-- ---- functions of sysbench 0.5

DB_ERROR_NONE, DB_ERROR_RESTART_TRANSACTION, DB_ERROR_FAILED = 0, 1, 2

-- The connection of a 0.5 script. It opens when the script needs it.
local legacy

local function connection()
    if not (legacy and legacy.id) then
        legacy = sysbench.sql.driver():connect()
    end
    return legacy
end

function db_connect()
    connection()
end

function db_disconnect()
    if legacy and legacy.id then
        legacy:disconnect()
    end
    legacy = nil
end

function db_query(sql)
    return connection():query(sql)
end

function db_bulk_insert_init(sql)
    return connection():bulk_insert_init(sql)
end

function db_bulk_insert_next(values)
    return connection():bulk_insert_next(values)
end

function db_bulk_insert_done()
    return connection():bulk_insert_done()
end

function db_prepare(sql)
    return connection():prepare(sql)
end

-- `values` is a list whose elements are read again at each execution.
function db_bind_param(statement, values)
    local parameters = {}
    for i, value in ipairs(values) do
        parameters[i] = statement:bind_create(type(value) == "number" and sysbench.sql.type.INT or sysbench.sql.type.VARCHAR)
    end
    statement:bind_param(unpack(parameters))
    statement[4].source = values
end

-- sysbench does not fill the list with PostgreSQL, either.
function db_bind_result()
end

function db_execute(statement)
    for i, value in ipairs(statement[4].source or {}) do
        statement[4 + i]:set(value)
    end
    return statement:execute()
end

-- Results arrive whole.
function db_store_results()
end

function db_free_results(result)
    if result then
        result:free()
    end
end

function db_close(statement)
    return statement:close()
end

-- The same by the names without their prefix.
for name, f in pairs({ connect = db_connect, disconnect = db_disconnect, query = db_query, prepare = db_prepare,
    bulk_insert_init = db_bulk_insert_init, bulk_insert_next = db_bulk_insert_next, bulk_insert_done = db_bulk_insert_done,
    bind_param = db_bind_param, bind_result = db_bind_result, execute = db_execute, store_results = db_store_results,
    free_results = db_free_results, close = db_close, DB_ERROR_NONE = DB_ERROR_NONE,
    DB_ERROR_RESTART_TRANSACTION = DB_ERROR_RESTART_TRANSACTION, DB_ERROR_FAILED = DB_ERROR_FAILED }) do
    sysbench.db[name] = f
end

-- Scripts for several databases read these whatever the driver.
mysql_table_engine, myisam_max_rows = "innodb", 1000000

sb_rand, sb_rand_uniform, sb_rand_gaussian, sb_rand_special, sb_rand_pareto =
    host.rand_default, host.rand_uniform, host.rand_gaussian, host.rand_special, host.rand_pareto
sb_rand_str = host.rand_string
sb_rand_uniq = function(from, to)
    from, to = from or 0, to or 4294967295
    local value
    repeat
        value = host.rand_unique()
    until from <= value and value <= to
    return value
end
sb_rnd = function()
    return (select(2, host.rand_halves()))
end

-- ---- reports and histograms

local COUNTER = { SB_CNT_OTHER = 0, SB_CNT_READ = 1, SB_CNT_WRITE = 2, SB_CNT_ERROR = 4, SB_CNT_RECONNECT = 5, SB_CNT_MAX = 6 }

-- Rates of a stretch of time: events, queries, reads, writes, others, errors, reconnects.
local function rates(stat)
    local s = stat.time_interval
    local queries = stat.reads + stat.writes + stat.other
    return stat.events / s, queries / s, stat.reads / s, stat.writes / s, stat.other / s, stat.errors / s, stat.reconnects / s
end

function sysbench.report_default(stat)
    local tps, qps, reads, writes, others, errors, reconnects = rates(stat)
    local line = "[ %.0fs ] thds: %u tps: %4.2f qps: %4.2f (r/w/o: %4.2f/%4.2f/%4.2f) lat (ms,%u%%): %4.2f err/s %4.2f reconn/s: %4.2f"
    print(format(line, stat.time_total, stat.threads_running, tps, qps, reads, writes, others, sysbench.opt.percentile,
        stat.latency_pct * 1000, errors, reconnects))
end

function sysbench.report_csv(stat)
    local tps, qps, reads, writes, others, errors, reconnects = rates(stat)
    print(format("%.0f,%u,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f", stat.time_total, stat.threads_running, tps, qps,
        reads, writes, others, stat.latency_pct * 1000, errors, reconnects))
end

-- The intermediate reports of a run are one list.
local json_reports = 0

function host.end_reports()
    if json_reports > 0 then
        host.print("\n]\n")
        json_reports = 0
    end
end

function sysbench.report_json(stat)
    local tps, qps, reads, writes, others, errors, reconnects = rates(stat)
    host.print((json_reports == 0 and "[\n" or ",\n") .. format([[
  {
    "time": %4.0f,
    "threads": %u,
    "tps": %4.2f,
    "qps": {
      "total": %4.2f,
      "reads": %4.2f,
      "writes": %4.2f,
      "other": %4.2f
    },
    "latency": %4.2f,
    "errors": %4.2f,
    "reconnects": %4.2f
  }]], stat.time_total, stat.threads_running, tps, qps, reads, writes, others, stat.latency_pct * 1000, errors, reconnects))
    json_reports = json_reports + 1
end

local Histogram = {}
Histogram.__index = Histogram
Histogram.__tostring = function()
    return "<sb_histogram>"
end

sysbench.histogram = {
    new = function(size, lowest, highest)
        return setmetatable({ bins = host.histogram(size, lowest, highest) }, Histogram)
    end,
}

-- sysbench draws a random number at each update, as for the latency of an event.
function Histogram:update(value)
    host.rand_halves()
    self.bins:update(value)
end

function Histogram:print()
    host.print(self.bins:text())
end

function Histogram:percentile(percent)
    return self.bins:percentile(percent)
end

-- ---- ffi: what scripts use of it, without access to memory

local C = { }

function C.usleep(us)
    yield(SLEEP, nil, tonumber(us))
    return 0
end

function C.sleep(seconds)
    yield(SLEEP, nil, tonumber(seconds) * 1000000)
    return 0
end

function C.sb_counter_inc(_, counter)
    host.count(tonumber(counter) or COUNTER[counter], 1)
end

function C.sb_counter_add(_, counter, n)
    host.count(tonumber(counter) or COUNTER[counter], tonumber(n))
end

function C.sb_more_events()
    return (yield(EVENT, nil, 0))
end

function C.sb_event_start()
    yield(EVENT, nil, 1)
end

function C.sb_event_stop()
    yield(EVENT, nil, 2)
end

for _, name in ipairs({ "default", "uniform", "gaussian", "special", "pareto", "zipfian", "unique", "uniform_double",
    "uniform_uint64" }) do
    C["sb_rand_" .. name] = sysbench.rand[name]
end

local function missing(what)
    return function(_, name)
        local constant = what == "ffi.C" and COUNTER[name]
        if constant then
            return constant
        end
        error(format("%s.%s is not available: scripts have usleep, sleep, sb_counter_inc and the random functions of ffi", what, tostring(name)), 2)
    end
end

ffi = setmetatable({
    C = setmetatable(C, { __index = missing("ffi.C") }),
    cdef = function() end,
    os = "Linux",
    arch = "x64",
    string = function(value)
        return tostring(value)
    end,
}, { __index = missing("ffi") })

-- ---- modules and files

local loaded = { ffi = ffi, string = string, table = table, math = math, coroutine = coroutine, bit = bit }
package = { path = "", cpath = "", config = "/\n;\n?\n!\n-\n", loaded = loaded, preload = {} }
loaded.package = package
loaded._G = _G

-- Loads text only: bytecode can access memory.
function loadstring(text, name)
    return host.load(tostring(text), name or tostring(text))
end

function load(chunk, name, _, environment)
    if type(chunk) == "function" then
        local pieces = {}
        for piece in chunk do
            if piece == "" then
                break
            end
            pieces[#pieces + 1] = piece
        end
        chunk = concat(pieces)
    end
    local f, problem = host.load(tostring(chunk), name or "=(load)")
    if f and environment then
        setfenv(f, environment)
    end
    return f, problem
end

function loadfile(name)
    local text, path = host.file(name)
    if not text then
        return nil, "cannot open " .. tostring(name)
    end
    return host.load(text, "@" .. path)
end

function dofile(name)
    local f, problem = loadfile(name)
    if not f then
        error(problem, 2)
    end
    return f()
end

function require(name)
    if loaded[name] ~= nil then
        return loaded[name]
    end
    local f = package.preload[name]
    if not f then
        local text, path = host.module(name)
        if not text then
            error(format("module '%s' not found", name), 2)
        end
        local problem
        f, problem = host.load(text, "@" .. path)
        if not f then
            error(format("error loading module '%s':\n\t%s", name, problem), 2)
        end
    end
    local value = f(name)
    if value ~= nil then
        loaded[name] = value
    elseif loaded[name] == nil then
        loaded[name] = true
    end
    return loaded[name]
end

function module(name)
    error("module() is not supported: return a table instead", 2)
end

function print(...)
    local texts = {}
    for i = 1, select("#", ...) do
        texts[i] = tostring((select(i, ...)))
    end
    host.print(concat(texts, "\t") .. "\n")
end

-- ---- processes and files

-- A command that a coroutine runs is a child process for which the event loop waits, so that the other clients go on. A sleep is a timer and
-- needs no process. While the script is loaded no event loop runs it.
local system = os.execute

local function execute(command)
    local is_awaited = type(command) == "string" and running()
    local seconds = is_awaited and match(command, "^%s*sleep%s+(%d+%.?%d*)%s*$")
    if seconds then
        yield(SLEEP, nil, tonumber(seconds) * 1000000)
        return 0
    elseif not host.allow_os then
        error("os.execute is not available without --allow-os (allow_os in a study file), except to sleep for a number of seconds in a function of the script", 2)
    elseif not is_awaited then
        return system(command)
    end
    local status, problem = yield(SHELL, nil, command)
    return status or error(problem, 2)
end

if host.allow_os then
    local popen, open, tmpname, remove = io.popen, io.open, os.tmpname, os.remove
    os.execute = execute
    -- To read what a command prints, waits for its end.
    function io.popen(command, mode)
        if type(command) ~= "string" or (mode or "r") ~= "r" or not running() then
            return popen(command, mode)
        end
        local name = tmpname()
        execute(format("{ %s\n} | head -c %d >%s", command, host.output_bytes_max, name))
        local file, problem = open(name)
        remove(name)
        return file, problem
    end
    loaded.io, loaded.os = io, os
else
    local function refused(library)
        return setmetatable({}, {
            __index = function(_, name)
                error(format("%s.%s is not available without --allow-os (allow_os in a study file)", library, tostring(name)), 2)
            end,
        })
    end
    local writer = {}
    function writer:write(...)
        local texts = { ... }
        for i = 1, #texts do
            texts[i] = tostring(texts[i])
        end
        host.print(concat(texts))
        return self
    end
    function writer:flush()
        return self
    end
    function writer:setvbuf()
        return true
    end
    local time = os
    os = refused("os")
    rawset(os, "time", time.time)
    rawset(os, "clock", time.clock)
    rawset(os, "date", time.date)
    rawset(os, "difftime", time.difftime)
    rawset(os, "getenv", time.getenv)
    rawset(os, "execute", execute)
    io = refused("io")
    rawset(io, "write", function(...)
        return writer:write(...)
    end)
    rawset(io, "stdout", writer)
    rawset(io, "stderr", writer)
    loaded.io, loaded.os = io, os
end
debug = { traceback = host.traceback }
string.dump = nil
jit, newproxy = nil, nil
arg = host.argv

-- ---- what the host calls

-- A function of the script, or nil.
function host.find(name)
    local f = _G[name]
    return type(f) == "function" and f or nil
end

local function described(problem)
    if type(problem) == "table" and problem.errcode ~= nil then
        return format("%s", problem.sql_errmsg or "event restart requested outside an event")
    end
    return tostring(problem)
end

-- How what the host runs ends: operations that no request has.
local DONE, STOP, RESTART, FAILED = 20, 21, 22, 23

-- Runs a function of the script.
function host.run(f, ...)
    local ok, value = pcall(f, ...)
    if ok then
        yield(DONE, value and true or false)
    else
        yield(FAILED, described(value))
    end
end

-- Runs events for ever: yields how each ended, and is resumed for the next.
function host.events(event, tid)
    while true do
        local ok, value = pcall(event, tid)
        if ok then
            yield(value and STOP or DONE)
        elseif type(value) == "table" and value.errcode == RESTART_EVENT then
            local hook = sysbench.hooks.before_restart_event
            ok = true
            if hook then
                ok, value = pcall(hook, value)
            end
            if ok then
                yield(RESTART)
            else
                yield(FAILED, described(value))
            end
        else
            yield(FAILED, described(value))
        end
    end
end

-- The commands of the script: {name, whether all threads run it} each.
function host.commands()
    local found = {}
    for name, command in pairs(sysbench.cmdline.commands or {}) do
        found[#found + 1] = { name, command[2] == sysbench.cmdline.PARALLEL_COMMAND }
    end
    return found
end

function host.command_function(name)
    local command = (sysbench.cmdline.commands or {})[name]
    return command and command[1]
end

function host.hook(name)
    return sysbench.hooks[name]
end

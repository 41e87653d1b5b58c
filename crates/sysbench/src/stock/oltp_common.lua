-- Tables, options and statements of the oltp_* scripts. Scripts that require this module use its global functions.

local INT = sysbench.sql.type.INT

-- Eleven digits in each group, as the columns c and pad have them.
local function groups(n)
    return string.rep("###########", n, "-")
end

local C_PATTERN, PAD_PATTERN = groups(10), groups(5)

sysbench.cmdline.options = {
    auto_inc = { "Let the database number the rows; otherwise the client does", true },
    create_secondary = { "Create an index on column k", true },
    delete_inserts = { "DELETE and INSERT pairs per transaction", 1 },
    distinct_ranges = { "SELECT DISTINCT statements per transaction", 1 },
    index_updates = { "UPDATE statements of the indexed column per transaction", 1 },
    mysql_storage_engine = { "Storage engine of MySQL; not used", "innodb" },
    non_index_updates = { "UPDATE statements of a column without an index per transaction", 1 },
    order_ranges = { "SELECT ... ORDER BY statements per transaction", 1 },
    pgsql_variant = { "Variant of PostgreSQL: redshift has no secondary index and no deletes" },
    point_selects = { "SELECT statements by primary key per transaction", 10 },
    range_selects = { "Run the range SELECT statements", true },
    range_size = { "Rows in a range", 100 },
    secondary = { "Use an index in place of the primary key", false },
    simple_ranges = { "SELECT statements of a range per transaction", 1 },
    skip_trx = { "Run every statement in a transaction of its own", false },
    sum_ranges = { "SELECT SUM() statements per transaction", 1 },
    table_size = { "Rows per table", 10000 },
    tables = { "Number of tables", 1 },
}

local opt = sysbench.opt
local uniform, default = sysbench.rand.uniform, sysbench.rand.default

function get_c_value()
    return sysbench.rand.string(C_PATTERN)
end

function get_pad_value()
    return sysbench.rand.string(PAD_PATTERN)
end

local function get_table_num()
    return uniform(1, opt.tables)
end

local function get_id()
    return default(1, opt.table_size)
end

-- ---- tables

function create_table(_, con, number)
    local is_redshift = opt.pgsql_variant == "redshift"
    local id_type = "INTEGER"
    if opt.auto_inc then
        id_type = is_redshift and "INTEGER IDENTITY(1,1)" or "SERIAL"
    end
    local key = opt.secondary and string.format("KEY xid_%d (id)", number) or "PRIMARY KEY (id)"
    print(string.format("Creating table 'sbtest%d'...", number))
    con:query(string.format([[CREATE TABLE sbtest%d(
  id %s,
  k INTEGER DEFAULT '0' NOT NULL,
  c CHAR(120) DEFAULT '' NOT NULL,
  pad CHAR(60) DEFAULT '' NOT NULL,
  %s
) ]], number, id_type, key))

    if opt.table_size > 0 then
        print(string.format("Inserting %d records into 'sbtest%d'", opt.table_size, number))
    end
    local columns = opt.auto_inc and "k, c, pad" or "id, k, c, pad"
    con:bulk_insert_init(string.format("INSERT INTO sbtest%d(%s) VALUES", number, columns))
    for id = 1, opt.table_size do
        local c, pad = get_c_value(), get_pad_value()
        local k = sysbench.rand.default(1, opt.table_size)
        if opt.auto_inc then
            con:bulk_insert_next(string.format("(%d, '%s', '%s')", k, c, pad))
        else
            con:bulk_insert_next(string.format("(%d, %d, '%s', '%s')", id, k, c, pad))
        end
    end
    con:bulk_insert_done()

    if opt.create_secondary and not is_redshift then
        print(string.format("Creating a secondary index on 'sbtest%d'...", number))
        con:query(string.format("CREATE INDEX k_%d ON sbtest%d(k)", number, number))
    end
end

-- Calls `f` with the numbers of the tables that are this thread's.
local function each_own_table(f)
    for number = sysbench.tid % opt.threads + 1, opt.tables, opt.threads do
        f(number)
    end
end

function cmd_prepare()
    local drv = sysbench.sql.driver()
    local con = drv:connect()
    each_own_table(function(number)
        create_table(drv, con, number)
    end)
end

-- Reads the tables, so that they are in memory.
function cmd_prewarm()
    local con = sysbench.sql.driver():connect()
    each_own_table(function(number)
        local name = "sbtest" .. number
        print("Prewarming table " .. name)
        con:query(string.format("SELECT AVG(id) FROM (SELECT * FROM %s ORDER BY id LIMIT %d) t", name, opt.table_size))
        con:query(string.format("SELECT COUNT(*) FROM (SELECT * FROM %s WHERE k LIKE '%%0%%' LIMIT %d) t", name, opt.table_size))
    end)
end

sysbench.cmdline.commands = {
    prepare = { cmd_prepare, sysbench.cmdline.PARALLEL_COMMAND },
    prewarm = { cmd_prewarm, sysbench.cmdline.PARALLEL_COMMAND },
}

function cleanup()
    local con = sysbench.sql.driver():connect()
    for number = 1, opt.tables do
        print(string.format("Dropping table 'sbtest%d'...", number))
        con:query("DROP TABLE IF EXISTS sbtest" .. number)
    end
end

-- ---- statements

-- By name: the text, in which %u is the number of the table, and the types of its parameters.
local STATEMENTS = {
    point_selects = { "SELECT c FROM sbtest%u WHERE id=?", INT },
    simple_ranges = { "SELECT c FROM sbtest%u WHERE id BETWEEN ? AND ?", INT, INT },
    sum_ranges = { "SELECT SUM(k) FROM sbtest%u WHERE id BETWEEN ? AND ?", INT, INT },
    order_ranges = { "SELECT c FROM sbtest%u WHERE id BETWEEN ? AND ? ORDER BY c", INT, INT },
    distinct_ranges = { "SELECT DISTINCT c FROM sbtest%u WHERE id BETWEEN ? AND ? ORDER BY c", INT, INT },
    index_updates = { "UPDATE sbtest%u SET k=k+1 WHERE id=?", INT },
    non_index_updates = { "UPDATE sbtest%u SET c=? WHERE id=?", { sysbench.sql.type.CHAR, 120 }, INT },
    deletes = { "DELETE FROM sbtest%u WHERE id=?", INT },
    inserts = {
        "INSERT INTO sbtest%u (id, k, c, pad) VALUES (?, ?, ?, ?)",
        INT, INT, { sysbench.sql.type.CHAR, 120 }, { sysbench.sql.type.CHAR, 60 },
    },
}

-- By number of the table and name: the statement, and its parameters.
stmt, param = {}, {}

local function prepare(con_, number, name)
    local text, statement = STATEMENTS[name][1], nil
    statement = con_:prepare(string.format(text, number))
    local parameters = {}
    for i = 2, #STATEMENTS[name] do
        local kind = STATEMENTS[name][i]
        if type(kind) == "table" then
            parameters[i - 1] = statement:bind_create(kind[1], kind[2])
        else
            parameters[i - 1] = statement:bind_create(kind)
        end
    end
    statement:bind_param(unpack(parameters))
    stmt[number][name], param[number][name] = statement, parameters
end

function prepare_for_each_table(name)
    for number = 1, opt.tables do
        prepare(con, number, name)
    end
end

function prepare_begin()
    stmt.begin = con:prepare("BEGIN")
end

function prepare_commit()
    stmt.commit = con:prepare("COMMIT")
end

function prepare_point_selects()
    prepare_for_each_table("point_selects")
end

function prepare_simple_ranges()
    prepare_for_each_table("simple_ranges")
end

function prepare_sum_ranges()
    prepare_for_each_table("sum_ranges")
end

function prepare_order_ranges()
    prepare_for_each_table("order_ranges")
end

function prepare_distinct_ranges()
    prepare_for_each_table("distinct_ranges")
end

function prepare_index_updates()
    prepare_for_each_table("index_updates")
end

function prepare_non_index_updates()
    prepare_for_each_table("non_index_updates")
end

function prepare_delete_inserts()
    prepare_for_each_table("deletes")
    prepare_for_each_table("inserts")
end

function thread_init()
    drv = sysbench.sql.driver()
    con = drv:connect()
    for number = 1, opt.tables do
        stmt[number], param[number] = {}, {}
    end
    prepare_statements()
end

function close_statements()
    for _, statements in ipairs(stmt) do
        for _, statement in pairs(statements) do
            statement:close()
        end
    end
    for _, name in ipairs({ "begin", "commit" }) do
        if stmt[name] then
            stmt[name]:close()
        end
    end
end

function thread_done()
    close_statements()
    con:disconnect()
end

-- ---- parts of transactions

function begin()
    stmt.begin:execute()
end

function commit()
    stmt.commit:execute()
end

function execute_point_selects()
    local number = get_table_num()
    local statement, id = stmt[number].point_selects, param[number].point_selects[1]
    for _ = 1, opt.point_selects do
        id:set(get_id())
        statement:execute()
    end
end

local function execute_range(name)
    local number = get_table_num()
    local statement, parameters = stmt[number][name], param[number][name]
    for _ = 1, opt[name] do
        local first = get_id()
        parameters[1]:set(first)
        parameters[2]:set(first + opt.range_size - 1)
        statement:execute()
    end
end

function execute_simple_ranges()
    execute_range("simple_ranges")
end

function execute_sum_ranges()
    execute_range("sum_ranges")
end

function execute_order_ranges()
    execute_range("order_ranges")
end

function execute_distinct_ranges()
    execute_range("distinct_ranges")
end

function execute_index_updates()
    local number = get_table_num()
    for _ = 1, opt.index_updates do
        param[number].index_updates[1]:set(get_id())
        stmt[number].index_updates:execute()
    end
end

function execute_non_index_updates()
    local number = get_table_num()
    local parameters = param[number].non_index_updates
    for _ = 1, opt.non_index_updates do
        parameters[1]:set_rand_str(C_PATTERN)
        parameters[2]:set(get_id())
        stmt[number].non_index_updates:execute()
    end
end

function execute_delete_inserts()
    local number = get_table_num()
    local deleted, inserted = param[number].deletes, param[number].inserts
    for _ = 1, opt.delete_inserts do
        local id, k = get_id(), get_id()
        deleted[1]:set(id)
        inserted[1]:set(id)
        inserted[2]:set(k)
        inserted[3]:set_rand_str(C_PATTERN)
        inserted[4]:set_rand_str(PAD_PATTERN)
        stmt[number].deletes:execute()
        stmt[number].inserts:execute()
    end
end

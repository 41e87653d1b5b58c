-- Updates of an indexed column by primary key.

require("oltp_common")

function prepare_statements()
    prepare_index_updates()
end

function event()
    execute_index_updates()
end

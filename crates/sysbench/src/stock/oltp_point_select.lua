-- One row by its primary key.

require("oltp_common")

function prepare_statements()
    -- An event has one select, whatever the option of the other scripts says.
    sysbench.opt.point_selects = 1
    prepare_point_selects()
end

function event()
    execute_point_selects()
end

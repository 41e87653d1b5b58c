select i.indexrelid::regclass::text
from pg_index i
join pg_class c on c.oid = i.indexrelid
join pg_am a on a.oid = c.relam
where a.amname = 'btree' and c.relpersistence = 'p' and i.indisready and i.indisvalid
order by i.indexrelid;

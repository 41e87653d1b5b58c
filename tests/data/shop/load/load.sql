\i schema.sql
\i rows.sql

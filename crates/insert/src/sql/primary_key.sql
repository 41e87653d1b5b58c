ALTER TABLE {table} ADD PRIMARY KEY (transactionid)

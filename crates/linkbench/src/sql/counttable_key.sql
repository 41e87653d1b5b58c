ALTER TABLE counttable ADD PRIMARY KEY (id, link_type)

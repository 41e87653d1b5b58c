ALTER TABLE linktable ADD PRIMARY KEY (link_type, id1, id2)

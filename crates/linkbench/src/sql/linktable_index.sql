CREATE INDEX id1_type ON linktable (id1, link_type, visibility, time, id2, version, data)

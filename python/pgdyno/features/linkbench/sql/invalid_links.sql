SELECT count(*) FROM linktable WHERE visibility NOT IN (0, 1)

SELECT pg_catalog.setval('nodetable_id_seq', {nodes})

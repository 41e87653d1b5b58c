SELECT pg_catalog.setval('sbtest{n}_id_seq', {size})

select cardinality(seqs) from
  (select array_agg(p) as payers, array_agg(1 + (p + floor(random() * (:accounts - 1))::bigint) % :accounts) as payees
    from (select 1 + floor(random() * :accounts)::bigint as p from generate_series(1, 1000)) t) o,
  batch('bench', gen_random_uuid()::text, '\x00', payers, payees, array_fill(1::numeric, array[1000]), array_fill('bench'::text, array[1000]));

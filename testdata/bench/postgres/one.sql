\set payer random(1, :accounts)
\set payee 1 + (:payer + random(0, :accounts - 2)) % :accounts
select transfer('bench', gen_random_uuid()::text, '\x00', :payer, :payee, 1, 'bench');

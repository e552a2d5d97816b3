-- The wallet's transfer as a service on PostgreSQL would write it: rows locked in order, two postings, a unique key, durable.
\set ON_ERROR_STOP on
create table account (
  id         bigint primary key,
  balance    numeric(39) not null check (balance >= 0),
  last_nonce bigint not null,
  day        date not null default current_date,
  day_debits numeric(39) not null default 0
) with (fillfactor = 70);
create table journal (
  seq    bigserial primary key,
  at     timestamptz not null default clock_timestamp(),
  amount numeric(39) not null,
  debit  bigint not null,
  credit bigint not null,
  nonce  bigint not null,
  memo   text not null
);
create table posting (
  account bigint not null,
  seq     bigint not null,
  delta   numeric(39) not null,
  balance numeric(39) not null,
  primary key (account, seq)
);
create table idempotency (
  principal   text not null,
  key         text not null,
  fingerprint bytea not null,
  seq         bigint not null,
  primary key (principal, key)
);

-- Does a transfer once: the same key again gives the first one's number, with another fingerprint it is an error.
create function transfer(who text, k text, fp bytea, payer bigint, payee bigint, n numeric, note text) returns bigint
language plpgsql as $$
declare
  done idempotency%rowtype;
  a account%rowtype;
  b account%rowtype;
  at bigint;
begin
  select * into done from idempotency where principal = who and key = k;
  if found then
    if done.fingerprint <> fp then raise exception 'IDEMPOTENCY_CONFLICT'; end if;
    return done.seq;
  end if;
  if payer < payee then
    select * into a from account where id = payer for update;
    select * into b from account where id = payee for update;
  else
    select * into b from account where id = payee for update;
    select * into a from account where id = payer for update;
  end if;
  if a.id is null or b.id is null then raise exception 'NOT_FOUND'; end if;
  if a.balance < n then raise exception 'INSUFFICIENT_FUNDS'; end if;
  if a.day = current_date and a.day_debits + n > 10::numeric ^ 22 then raise exception 'LIMITS_EXCEEDED'; end if;
  update account set balance = balance - n, last_nonce = last_nonce + 1, day = current_date,
    day_debits = case when day = current_date then day_debits + n else n end where id = payer;
  update account set balance = balance + n where id = payee;
  insert into journal (amount, debit, credit, nonce, memo) values (n, payer, payee, a.last_nonce + 1, note) returning seq into at;
  insert into posting values (payer, at, -n, a.balance - n), (payee, at, n, b.balance + n);
  insert into idempotency values (who, k, fp, at);
  return at;
end $$;

-- Does n transfers between random accounts in one transaction, by sets: keys first, rows locked in order, one update an account.
create function batch(n int, accounts int) returns void language plpgsql as $$
declare fresh int;
begin
  create temp table if not exists op (seq bigint, k text, payer bigint, payee bigint) on commit delete rows;
  insert into op select nextval('journal_seq_seq'), gen_random_uuid()::text, p, 1 + (p + floor(random() * (accounts - 1))::bigint) % accounts
    from (select 1 + floor(random() * accounts)::bigint as p from generate_series(1, n)) t;
  insert into idempotency select 'bench', k, '\x00', seq from op on conflict do nothing;
  get diagnostics fresh = row_count;
  if fresh <> n then raise exception 'a key was used before: one by one'; end if;
  perform 1 from account where id in (select payer from op union select payee from op) order by id for update;
  insert into journal (seq, amount, debit, credit, nonce, memo)
    select seq, 1, payer, payee, a.last_nonce + row_number() over (partition by payer order by seq), 'bench'
    from op join account a on a.id = payer;
  insert into posting
    select t.id, t.seq, delta, a.balance + sum(delta) over (partition by t.id order by t.seq)
    from (select payer as id, seq, -1 as delta from op union all select payee, seq, 1 from op) t join account a on a.id = t.id;
  update account a set balance = balance + t.delta, last_nonce = last_nonce + t.debits,
    day = current_date, day_debits = case when day = current_date then day_debits + t.debits else t.debits end
    from (select id, sum(delta) as delta, count(*) filter (where delta < 0) as debits
      from (select payer as id, -1 as delta from op union all select payee, 1 from op) u group by id) t where a.id = t.id;
end $$;

insert into account select i, 1000000000000, 0 from generate_series(1, :accounts) i;
vacuum analyze;

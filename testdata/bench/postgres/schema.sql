-- The wallet's transfers as a service on PostgreSQL would write them: rows locked in order, two postings, a unique key, durable.
\set ON_ERROR_STOP on
create table account (
  id         bigint primary key,
  balance    numeric(39) not null,
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
  batch       bigint[], -- all numbers, of a batch
  primary key (principal, key)
);
alter table idempotency alter batch set storage external; -- numbers do not get smaller

-- Does a transfer once: the same key again gives the first one's number, with another fingerprint it is an error. The rows are updated, and
-- so locked, in the order of their ids. What must not be is refused here and not by constraints, which are parsed at each statement.
create function transfer(who text, k text, fp bytea, payer bigint, payee bigint, n numeric, note text,
  out done_seq bigint, out done_at timestamptz, out done_nonce bigint, out replayed bool)
language plpgsql as $$
declare
  done idempotency%rowtype;
  payer_has numeric;
  payee_has numeric;
  today numeric;
begin
  select * into done from idempotency where principal = who and key = k;
  replayed := found;
  if replayed then
    if done.fingerprint <> fp then raise exception 'IDEMPOTENCY_CONFLICT'; end if;
    select seq, at, nonce into done_seq, done_at, done_nonce from journal where seq = done.seq;
    return;
  end if;
  if payee < payer then
    update account set balance = balance + n where id = payee returning balance into payee_has;
  end if;
  update account set balance = balance - n, last_nonce = last_nonce + 1, day = current_date,
    day_debits = case when day = current_date then day_debits + n else n end
    where id = payer returning balance, last_nonce, day_debits into payer_has, done_nonce, today;
  if payer < payee then
    update account set balance = balance + n where id = payee returning balance into payee_has;
  end if;
  if payer_has is null or payee_has is null then raise exception 'NOT_FOUND'; end if;
  if payer_has < 0 then raise exception 'INSUFFICIENT_FUNDS'; end if;
  if today > 1e22 then raise exception 'LIMITS_EXCEEDED'; end if;
  insert into journal (amount, debit, credit, nonce, memo) values (n, payer, payee, done_nonce, note) returning seq, at into done_seq, done_at;
  insert into posting values (payer, done_seq, -n, payer_has), (payee, done_seq, n, payee_has);
  insert into idempotency values (who, k, fp, done_seq);
end $$;

-- Does all of many transfers, or none, once, by sets: rows locked in order, one update an account.
create function batch(who text, k text, fp bytea, payers bigint[], payees bigint[], amounts numeric[], notes text[],
  out seqs bigint[], out done_at timestamptz, out nonces bigint[], out replayed bool)
language plpgsql as $$
declare
  done idempotency%rowtype;
  postings int;
  least numeric; -- balance after a posting
  most numeric;  -- debits of a day
begin
  select * into done from idempotency where principal = who and key = k;
  replayed := found;
  if replayed then
    if done.fingerprint <> fp then raise exception 'IDEMPOTENCY_CONFLICT'; end if;
    seqs := done.batch;
    select min(at), array_agg(nonce order by seq) into done_at, nonces from journal where seq = any(seqs);
    return;
  end if;
  perform 1 from account where id = any(payers || payees) order by id for update;
  seqs := array(select nextval('journal_seq_seq') from generate_series(1, cardinality(payers)));
  done_at := clock_timestamp();
  with entered as (
    insert into journal (seq, at, amount, debit, credit, nonce, memo)
      select o.seq, done_at, n, payer, payee, last_nonce + row_number() over (partition by payer order by o.seq), note
      from unnest(seqs, payers, payees, amounts, notes) o (seq, payer, payee, n, note) join account on id = payer
      returning seq, nonce)
    select array_agg(nonce order by seq) into nonces from entered;
  with posted as (
    insert into posting
      select id, t.seq, delta, balance + sum(delta) over (partition by id order by t.seq)
      from (select * from unnest(payees, seqs, amounts) union all select p, s, -n from unnest(payers, seqs, amounts) u (p, s, n)) t (party, seq, delta)
      join account on id = party
      returning balance)
    select count(*), min(balance) into postings, least from posted;
  if postings <> 2 * cardinality(payers) then raise exception 'NOT_FOUND'; end if;
  if least < 0 then raise exception 'INSUFFICIENT_FUNDS'; end if;
  with updated as (
    update account a set balance = balance + delta, last_nonce = last_nonce + debits, day = current_date,
      day_debits = case when day = current_date then day_debits + debited else debited end
      from (select party, sum(n * sign) as delta, count(*) filter (where sign < 0) as debits, coalesce(sum(n) filter (where sign < 0), 0) as debited
        from (select p, n, -1 from unnest(payers, amounts) u (p, n) union all select p, n, 1 from unnest(payees, amounts) u (p, n)) u (party, n, sign)
        group by party) t where id = party
      returning day_debits)
    select max(day_debits) into most from updated;
  if most > 1e22 then raise exception 'LIMITS_EXCEEDED'; end if;
  insert into idempotency values (who, k, fp, seqs[1], seqs);
end $$;

insert into account select i, 1000000000000, 0 from generate_series(0, :accounts) i;
vacuum analyze;

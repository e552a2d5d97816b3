package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"ronbox/httpapi/wire"
)

const (
	lookBackFor = 32 * 24 * time.Hour // longer than a month: a file of every month is told to name its runs
	goOnFor     = 24 * time.Hour      // as long as the node keeps keys, as a rule
)

const (
	reasonDoneBefore = "done_before"
	reasonUnread     = "statement_unread"
)

// statement names the entries of one account in one asset.
type statement struct{ account, asset string }

// saying is what an operation says as far as its posting shows it.
type saying struct {
	op, from, to, amount, memo string
	nonce                      uint64 // 0 where the verb chooses it
}

func (p *posting) says() saying {
	return saying{p.Op.String(), p.From, p.To, p.Amount.String(), p.memo, p.Nonce}
}

// tally is the rows that say the same, as far as they wait, and how many of them are done.
type tally struct {
	waits []int
	done  int
}

// lookBack finds rows that a run of the same name has done though no state tells of it: the file was lost, or stands on
// another machine. Keys are forgotten after a day and another who asks has others, but every posting stands in a
// statement with the key it was made under, and that names the run. A state may tell of fewer rows than were done, as a
// copy does that was put back: what it tells is taken from what is found.
//
// Rows that end a hold are not looked for: a hold ends once. Nonces are looked up first: what is done after that, by a request
// still under way, takes one of them, and is found then.
func (b *batchRun) lookBack(ctx context.Context) error {
	for _, i := range b.pending {
		if r := &b.rows[i]; r.auto {
			if _, err := b.nonce(ctx, r.payer); err != nil {
				return err
			}
		}
	}
	var rows []int
	var oldest time.Time
	for at, sought := range b.sought() {
		seen := map[saying]int{}
		err := b.postings(ctx, at, func(p *posting) {
			says := p.says()
			if sought[says] == nil {
				says.nonce = 0
			}
			t := sought[says]
			if t == nil || seen[says] == t.done+len(t.waits) {
				return
			}
			b.seen(p.Receipt)
			if seen[says]++; seen[says] <= t.done {
				return
			}
			if made := time.Unix(0, p.At); oldest.IsZero() || made.Before(oldest) {
				oldest = made
			}
		})
		if mayNot(err) {
			err = unread(at, sought)
		}
		if err != nil {
			return err
		}
		for says, t := range sought {
			rows = append(rows, t.waits[:max(0, min(len(t.waits), seen[says]-t.done))]...)
		}
	}
	if len(rows) == 0 {
		return b.knownBefore()
	}
	slices.Sort(rows)
	if err := b.mayGoOn(rows, oldest); err != nil {
		return err
	}
	b.notice("%d of %d operations were done before, the first at %s, by a run that no state here tells of: they are not done again; rows that are meant again go into a file of their own with --run NAME",
		len(rows), len(b.rows), oldest.UTC().Format(time.RFC3339))
	step := batchStep{No: b.no, Before: spans(rows), Ledger: b.marked()}
	if err := b.state.write(step); err != nil {
		return err
	}
	return b.doneBefore(step.Before)
}

// sought puts together the rows to look for, by the statement in which their postings stand.
func (b *batchRun) sought() map[statement]map[saying]*tally {
	waits, refused := set(b.pending), set(refusedRows(b.out.Refused))
	out := map[statement]map[saying]*tally{}
	for i := range b.rows {
		op := &b.rows[i].op
		if op.Hold != "" || refused[i] {
			continue
		}
		at := statement{op.From, op.Asset}
		if op.From == "" {
			at.account = op.To
		}
		if out[at] == nil {
			out[at] = map[saying]*tally{}
		}
		says := saying{op.Op, op.From, op.To, op.AmountMinor, op.Memo, op.Nonce}
		t := out[at][says]
		if t == nil {
			t = &tally{}
			out[at][says] = t
		}
		if waits[i] {
			t.waits = append(t.waits, i)
		} else {
			t.done++
		}
	}
	return out
}

// postings shows each what runs of this name have posted, the newest first.
func (b *batchRun) postings(ctx context.Context, at statement, each func(p *posting)) error {
	since := b.now().Add(-lookBackFor).UnixNano()
	err := b.trace(ctx, b.node, at.account, at.asset, func(p posting) bool {
		if p.At < since {
			return false
		}
		b.entries++
		b.looked(b.entries)
		if strings.HasPrefix(p.Idem, b.owner) {
			each(&p)
		}
		return true
	})
	p, refused := errors.AsType[*wire.Problem](err)
	if refused && p.Status == http.StatusNotFound || undeclared(err) {
		return nil
	}
	return err
}

// unread stops where rows wait for nonces and their statement may not be read: a run that was done and forgotten, by this
// state and by the node's keys, would be done again. A nonce that the file gives is used once, whatever was done.
func unread(at statement, sought map[saying]*tally) error {
	for says, t := range sought {
		if says.nonce == 0 && len(t.waits) > 0 {
			return failed(exitDenied, reasonUnread, "run it again with a token that may read that statement, or on the node's socket",
				"what was done for %s cannot be told: the token may not read its statement in %s", at.account, at.asset)
		}
	}
	return nil
}

// undeclared tells that nothing stands in a statement, its asset not being declared.
func undeclared(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == "asset_unknown"
}

// stillToDo is the one way on that is the same whatever was done.
const stillToDo = "`ronbox wallet history` shows them. Put the lines that are still to be done, and no others, into a file of their own and name its run with --run NAME"

// mayGoOn stops where a person has to say what is meant. What was done lately was this file, cut off. What is older may
// be the payment of another month, and an atomic file is done whole or not at all.
func (b *batchRun) mayGoOn(rows []int, oldest time.Time) error {
	sought := 0 // of those that wait
	for _, i := range b.pending {
		if b.rows[i].op.Hold == "" {
			sought++
		}
	}
	whole := b.mode != modeAtomic || len(rows) == sought
	if whole && b.now().Sub(oldest) < goOnFor {
		return nil
	}
	f := failed(exitFailed, reasonDoneBefore, stillToDo+"; --json lists those that were done",
		"%d of %d operations were done before, line %d among them, the first at %s", len(rows), len(b.rows), b.rows[rows[0]].line, oldest.UTC().Format(time.RFC3339))
	f.details = map[string]any{"lines": b.linesOf(rows), "operations": len(rows)}
	return f
}

// linesOf names rows as a person does.
func (b *batchRun) linesOf(rows []int) []span {
	var lines []int
	for _, i := range rows {
		lines = append(lines, b.rows[i].line)
	}
	return spans(lines)
}

// doneBefore takes rows that wait as done.
func (b *batchRun) doneBefore(s []span) error {
	rows, err := rowsOf(s, len(b.rows))
	if err == nil && !within(rows, b.pending) {
		err = errNoState
	}
	if err != nil {
		return err
	}
	b.pending = slices.DeleteFunc(b.pending, func(i int) bool {
		_, is := slices.BinarySearch(rows, i)
		return is
	})
	b.known = nil
	b.out.Accepted += len(rows)
	b.out.Before = append(b.out.Before, b.linesOf(rows)...)
	return nil
}

// others finds what another run has done meanwhile: one that made the request, which the node then knows with other nonces,
// or one that may have taken the nonces for the same rows.
func (b *batchRun) others(ctx context.Context) error {
	if len(b.known) == 0 && !b.taken {
		return nil
	}
	b.taken = false
	return b.lookBack(ctx)
}

// knownBefore stops when the node knows a request of these rows and no statement shows it: it is done for another token, or
// is under way.
func (b *batchRun) knownBefore() error {
	if len(b.known) == 0 {
		return nil
	}
	return failed(exitFailed, reasonDoneBefore, "if another run of it is under way wait for its end, then run the same command again; otherwise "+stillToDo,
		"%d operations from line %d on were done before, at least in part, or are being done, by another run of such a file: the node knows their request", len(b.known), b.rows[b.known[0]].line)
}

package wallet

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"ronbox/cmd/ronbox/cli"
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

// terms are the members of an operation that its posting shows.
type terms struct {
	op, from, to, amount, memo string
	nonce                      uint64 // 0 where the verb chooses it
}

func (p *posting) terms() terms {
	return terms{p.Op.String(), p.From, p.To, p.Amount.String(), p.memo, p.Nonce}
}

// tally counts the rows of the same terms: those that are pending, and how many are done.
type tally struct {
	waits []int
	done  int
}

// findDoneBefore finds pending rows that an earlier run of the same name has done without a trace in the state file: the
// file was lost, is an old copy, or stands on another machine. The node forgets idempotency keys after a day, and each
// principal has its own, but every posting stands in a statement with the key it was made under, and the key names the run.
// Rows that the state file shows as done are subtracted from the postings found.
//
// Rows that end a hold are not searched for: a hold ends once. Nonces are looked up before the search: a request that is
// still under way then takes one of them, and its rows are found later.
func (b *batchRun) findDoneBefore(ctx context.Context) error {
	for _, i := range b.pending {
		if r := &b.rows[i]; r.auto {
			if _, err := b.nonce(ctx, r.payer); err != nil {
				return err
			}
		}
	}
	var rows []int
	var oldest time.Time
	for at, sought := range b.rowsToFind() {
		seen := map[terms]int{}
		err := b.eachPosting(ctx, at, func(p *posting) {
			says := p.terms()
			if sought[says] == nil {
				says.nonce = 0
			}
			t := sought[says]
			if t == nil || seen[says] == t.done+len(t.waits) {
				return
			}
			b.advanceMark(p.Receipt)
			if seen[says]++; seen[says] <= t.done {
				return
			}
			if made := time.Unix(0, p.At); oldest.IsZero() || made.Before(oldest) {
				oldest = made
			}
		})
		if isForbidden(err) {
			err = errUnread(at, sought)
		}
		if err != nil {
			return err
		}
		for says, t := range sought {
			rows = append(rows, t.waits[:max(0, min(len(t.waits), seen[says]-t.done))]...)
		}
	}
	if len(rows) == 0 {
		return b.refuseKnown()
	}
	slices.Sort(rows)
	if err := b.checkMayContinue(rows, oldest); err != nil {
		return err
	}
	b.notice("%d of %d operations were done before, the first at %s, by a run that no state here tells of: they are not done again; rows that are meant again go into a file of their own with --run NAME",
		len(rows), len(b.rows), oldest.UTC().Format(time.RFC3339))
	step := batchStep{No: b.no, Before: toSpans(rows), Ledger: b.currentMark()}
	if err := b.state.write(step); err != nil {
		return err
	}
	return b.doneBefore(step.Before)
}

// rowsToFind groups the rows to search for by the statement that shows their postings.
func (b *batchRun) rowsToFind() map[statement]map[terms]*tally {
	waits, refused := setOf(b.pending), setOf(refusedRows(b.out.Refused))
	out := map[statement]map[terms]*tally{}
	for i := range b.rows {
		op := &b.rows[i].op
		if op.Hold != "" || refused[i] {
			continue
		}
		at := statement{cmp.Or(op.From, op.To), op.Asset}
		if out[at] == nil {
			out[at] = map[terms]*tally{}
		}
		says := terms{op.Op, op.From, op.To, op.AmountMinor, op.Memo, op.Nonce}
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

// eachPosting calls each with the postings of runs of this name, the newest first.
func (b *batchRun) eachPosting(ctx context.Context, at statement, each func(p *posting)) error {
	since := b.now().Add(-lookBackFor).UnixNano()
	err := walkStatement(ctx, &b.Repeater, b.node, at, func(p posting) bool {
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
	if refused && p.Status == http.StatusNotFound || isAssetUnknown(err) {
		return nil
	}
	return err
}

// errUnread is the failure when rows without a nonce are pending and their statement may not be read: rows of an earlier
// run that neither the state file nor the node remembers would be done again. A nonce that the file gives is used once in
// any case.
func errUnread(at statement, sought map[terms]*tally) error {
	for says, t := range sought {
		if says.nonce == 0 && len(t.waits) > 0 {
			return cli.Fail(cli.ExitDenied, reasonUnread, "run it again with a token that may read that statement, or on the node's socket",
				"what was done for %s cannot be told: the token may not read its statement in %s", at.account, at.asset)
		}
	}
	return nil
}

// isAssetUnknown reports whether an asset is not declared, so that no statement in it has an entry.
func isAssetUnknown(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == "asset_unknown"
}

// stillToDo is the advice that is right whatever was done.
const stillToDo = "`ronbox wallet history` shows them. Put the lines that are still to be done, and no others, into a file of their own and name its run with --run NAME"

// checkMayContinue stops where a person has to decide. Rows done within a day are of this file, cut off. Older ones may be
// the payments of another month, and an atomic file is done whole or not at all.
func (b *batchRun) checkMayContinue(rows []int, oldest time.Time) error {
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
	f := cli.Fail(cli.ExitFailed, reasonDoneBefore, stillToDo+"; --json lists those that were done",
		"%d of %d operations were done before, line %d among them, the first at %s", len(rows), len(b.rows), b.rows[rows[0]].line, oldest.UTC().Format(time.RFC3339))
	f.Details = map[string]any{"lines": b.linesOf(rows), "operations": len(rows)}
	return f
}

// linesOf gives the lines of rows in the file.
func (b *batchRun) linesOf(rows []int) []span {
	var lines []int
	for _, i := range rows {
		lines = append(lines, b.rows[i].line)
	}
	return toSpans(lines)
}

// doneBefore takes pending rows as done.
func (b *batchRun) doneBefore(s []span) error {
	rows, err := expandSpans(s, len(b.rows))
	if err == nil && !isSubset(rows, b.pending) {
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
	b.out.PaidBefore += len(rows)
	b.out.Before = append(b.out.Before, b.linesOf(rows)...)
	return nil
}

// checkOtherRuns searches for rows that another run has done meanwhile: one that sent the same request, which the node then
// knows with other nonces, or one that may have taken the nonces for the same rows.
func (b *batchRun) checkOtherRuns(ctx context.Context) error {
	if len(b.known) == 0 && !b.taken {
		return nil
	}
	b.taken = false
	return b.findDoneBefore(ctx)
}

// refuseKnown stops when the node knows a request of these rows that no statement shows: it was done for another token, or
// is under way.
func (b *batchRun) refuseKnown() error {
	if len(b.known) == 0 {
		return nil
	}
	return cli.Fail(cli.ExitFailed, reasonDoneBefore, "if another run of it is under way wait for its end, then run the same command again; otherwise "+stillToDo,
		"%d operations from line %d on were done before, at least in part, or are being done, by another run of such a file: the node knows their request", len(b.known), b.rows[b.known[0]].line)
}

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
)

// batchFlags say how a batch is sent.
type batchFlags struct {
	atomic bool
	retry  bool
	chunk  int
	state  string
	run    string
}

func (a *app) walletBatchCmd() *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use:   "batch FILE",
		Short: "Do the operations of a CSV or NDJSON file, each once, however often it is run",
		Long: `Do the operations of a file, "-" being stdin: CSV whose first line names the columns, or
NDJSON. The columns are op, from, to, asset, amount_minor (minor units), nonce,
expires_in_s, hold, memo, valid_until; op is issue, transfer, burn, hold, capture or
release. The whole file is checked before anything is sent.

Where nonces are left out the verb chooses them, and keeps what it chose and what was done
in FILE.state (or --state): run again after a crash, a kill or a lost connection, it goes
on where it ended and does nothing twice. Rows may be added at the end of the file. Done
once, a file is done: to do it another time name that run with --run.

Whatever the state tells or lacks (lost, an old copy, another machine), a row is known by
what it says, its place among the rows that say the same, and --run. The name of the file
is no part of that: another payment in the same words needs a --run of its own, and stdin
--run or --state. Rows that statements show as done in the last 32 days are not done
again. If all of them were done within a day the rest is done, and stderr tells of them,
even with -q; otherwise nothing more is sent. An edited row is another row, but rows that
differ in valid_until or expires_in_s alone say the same: statements show neither. Rows
that end a hold are refused then: a hold ends once. Where the verb chooses the nonces the
token must be one that may read the statements of the payers, for issue of the payees. Two
runs of a name at the same time, each with a state of its own, pay no row twice either;
the slower finds what the other has done.

Operations of one account are done in order; one that is refused is told and keeps none
of the others back, unless --atomic makes all or none of up to 4096. Exit 1: some were
refused; --retry-refused tries those again, and only those.`,
		Example: `  ronbox wallet batch salaries.csv
  ronbox wallet batch salaries.csv --run 2026-12
  ronbox wallet batch salaries.csv --atomic --json
  generate | ronbox wallet batch - --run 2026-12`,
		Args: exactly(1, "one file"),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.atomic, "atomic", false, "all operations or none")
	fl.BoolVar(&f.retry, "retry-refused", false, "try again what an earlier run was refused")
	fl.IntVar(&f.chunk, "chunk", 1000, "at most this many operations a request, 1 to 4096")
	fl.StringVar(&f.state, "state", "", "`file` that keeps what was done (default FILE.state, with --run FILE.NAME.state; none for stdin)")
	fl.StringVar(&f.run, "run", "", "`name` of this run: under another name the same rows are done once more")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		return a.walletBatch(ctx, c, args[0], f)
	})
	return cmd
}

func (a *app) walletBatch(ctx context.Context, node batchNode, file string, f batchFlags) error {
	if f.chunk < 1 || f.chunk > maxChunkOps {
		return usage("--chunk %d: want 1 to %d", f.chunk, maxChunkOps)
	}
	if f.run != "" {
		if err := record.CheckIdem(f.run); err != nil {
			return usage("--run %q: must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -", f.run)
		}
	}
	rows, err := a.readBatch(file)
	if err != nil {
		return err
	}
	auto := func(r batchRow) bool { return r.auto }
	if file == "-" && f.state == "" && f.run == "" && slices.ContainsFunc(rows, auto) {
		return usage("stdin needs --state FILE, or --run NAME where it is done anew each time: rows that say what an earlier run of a name did are taken as done")
	}
	b := &batchRun{repeater: a.repeater(), node: node, rows: rows, owner: ownerOf(f.run), mode: modeIndependent, most: f.chunk, now: a.now, notice: a.notice}
	if f.atomic {
		b.mode, b.most = modeAtomic, maxChunkOps
		if err := oneRequest(rows); err != nil {
			return err
		}
	}
	var steps []batchStep
	state := statePath(file, &f)
	if state != "" {
		plan := batchPlan{Version: stateVersion, Name: f.run, Input: inputDigest(rows), Mode: b.mode, Rows: len(rows)}
		if b.state, steps, err = openBatchState(state, plan, rows); err != nil {
			return err
		}
		defer b.state.close()
	}
	open, err := b.begin(steps)
	if err != nil {
		return damagedState(state, err)
	}
	b.out.State = state
	if f.retry && open == nil {
		if err := b.retryRefused(); err != nil {
			return err
		}
	}
	return a.runBatch(ctx, b, open)
}

// oneRequest refuses what does not fit into one request.
func oneRequest(rows []batchRow) error {
	bytes := 0
	for i := range rows {
		bytes += opBytes(&rows[i].op)
	}
	if len(rows) > maxChunkOps || bytes > maxChunkBytes {
		return failed(exitFailed, "too_large", "leave --atomic out, or split the file",
			"%d operations, %s: one request holds %d and %s", len(rows), byteUnit(int64(bytes)), maxChunkOps, byteUnit(maxChunkBytes))
	}
	return nil
}

// statePath is where the state is kept, "" for nowhere.
func statePath(file string, f *batchFlags) string {
	switch {
	case f.state != "" || file == "-":
		return f.state
	case f.run != "":
		return file + "." + f.run + ".state"
	}
	return file + ".state"
}

func (a *app) runBatch(ctx context.Context, b *batchRun, open *batchStep) error {
	if b.out.Resumed {
		a.say("of %d operations %d were done and %d refused before, as %s says", len(b.rows), b.out.Accepted, len(b.out.Refused), b.out.State)
	}
	p := a.progress(countUnit)
	b.done = func(settled, total int) { p.during("batch, operations"); p.at(int64(settled), int64(total)) }
	b.looked = func(entries int64) { p.during("look for what was done before, entries"); p.at(entries, 0) }
	err := b.run(ctx, open)
	p.end()
	if err != nil {
		f := &failure{verdict: judge(err), err: err, details: map[string]any{"batch": b.out}, unsettled: true}
		if ctx.Err() != nil {
			f.next = fmt.Sprintf("%d of %d operations were done before; %s", b.out.Accepted, len(b.rows), runAgain)
		}
		return f
	}
	if err := a.show(b.out, func(t table) { batchTable(t, b.out) }); err != nil {
		return failed(judge(err).code, "not_shown", "run the same command again: it does nothing twice and tells what became of the rows",
			"the batch was sent, and only what became of it could not be printed: %w", err)
	}
	if len(b.out.Refused) > 0 {
		a.exit = exitFailed
	}
	return nil
}

// mostRefused is how many refusals a person is shown; --json has all.
const mostRefused = 20

func batchTable(t table, d batchDoc) {
	t.row("accepted", fmt.Sprintf("%d of %d", d.Accepted, d.Rows))
	if n := count(d.Before); n > 0 {
		t.row("of them", fmt.Sprintf("%d done before, see `ronbox wallet history`", n))
	}
	t.row("refused", len(d.Refused))
	t.row("requests", d.Requests)
	if d.State != "" {
		t.row("state", d.State)
	}
	for i, r := range d.Refused {
		if i == mostRefused {
			t.row("", fmt.Sprintf("and %d more, see --json", len(d.Refused)-mostRefused))
			break
		}
		t.row(fmt.Sprintf("line %d", r.Line), fmt.Sprintf("%s (%s)", r.Code, r.Reason))
	}
	if len(d.Refused) > 0 && d.State != "" {
		t.row("next", "see to the cause, then run it with --retry-refused: it tries those again, and only those")
	}
}

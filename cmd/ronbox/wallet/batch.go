package wallet

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wallet"
)

// batchFlags say how a batch is sent.
type batchFlags struct {
	atomic bool
	retry  bool
	chunk  int
	state  string
	run    string
}

func (a app) batchCmd() *cobra.Command {
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
of the others back, unless --atomic makes all or none of up to 4096; --retry-refused tries
again what was refused, and only that. A run tells apart what is paid now, by itself, and
what was done before, which it leaves alone.

Exit codes, beside those of every verb: 20 nothing was left to do, and paid now is 0; 21
some operations were refused; 22 the file is no batch, and nothing was sent. A file of
every month without a --run of its own thus ends with 20 from the second month on.`,
		Example: `  ronbox wallet batch salaries.csv
  ronbox wallet batch salaries.csv --run 2026-12
  ronbox wallet batch salaries.csv --atomic --json
  generate | ronbox wallet batch - --run 2026-12`,
		Args: cli.Exactly(1, "one file"),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.atomic, "atomic", false, "all operations or none")
	fl.BoolVar(&f.retry, "retry-refused", false, "try again what an earlier run was refused")
	fl.IntVar(&f.chunk, "chunk", 1000, "at most this many operations a request, 1 to 4096")
	fl.StringVar(&f.state, "state", "", "`file` that keeps what was done (default FILE.state, with --run FILE.NAME.state; none for stdin)")
	fl.StringVar(&f.run, "run", "", "`name` of this run: under another name the same rows are done once more")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		return a.batch(ctx, c, args[0], f)
	})
	return cmd
}

func (a app) batch(ctx context.Context, node batchNode, file string, f batchFlags) error {
	if f.chunk < 1 || f.chunk > maxChunkOps {
		return cli.Usage("--chunk %d: want 1 to %d", f.chunk, maxChunkOps)
	}
	if f.run != "" {
		if err := record.CheckIdem(f.run); err != nil {
			return cli.Usage("--run %q: must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -", f.run)
		}
	}
	rows, err := a.readBatch(file)
	if err != nil {
		return err
	}
	auto := func(r batchRow) bool { return r.auto }
	if file == "-" && f.state == "" && f.run == "" && slices.ContainsFunc(rows, auto) {
		return cli.Usage("stdin needs --state FILE, or --run NAME where it is done anew each time: rows that say what an earlier run of a name did are taken as done")
	}
	b := &batchRun{Repeater: a.Repeater(), node: node, rows: rows, owner: ownerOf(f.run), mode: modeIndependent, most: f.chunk, now: a.Now, notice: a.Warn}
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
		if b.state, steps, err = openState(state, plan, rows); err != nil {
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
		return cli.Fail(cli.ExitFileUnfit, "too_large", "leave --atomic out, or split the file",
			"%d operations, %s: one request holds %d and %s", len(rows), cli.Bytes(int64(bytes)), maxChunkOps, cli.Bytes(maxChunkBytes))
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

func (a app) runBatch(ctx context.Context, b *batchRun, open *batchStep) error {
	if b.out.Resumed {
		a.Say("of %d operations %d were done and %d refused before, as %s says", len(b.rows), b.out.Accepted, len(b.out.Refused), b.out.State)
	}
	p := a.Progress(cli.Count, "")
	b.done = func(settled, total int) { p.Stage("batch, operations"); p.At(int64(settled), int64(total)) }
	b.looked = func(entries int64) { p.Stage("look for what was done before, entries"); p.At(entries, 0) }
	err := b.run(ctx, open)
	p.End()
	b.out.PaidNow = b.out.Accepted - b.out.PaidBefore
	if err != nil {
		f := &cli.Failure{Err: err, Details: map[string]any{"batch": b.out}, Unsettled: true}
		if ctx.Err() != nil {
			f.Next = fmt.Sprintf("%d of %d operations were done before; %s", b.out.Accepted, len(b.rows), runAgain)
		}
		return f
	}
	if b.out.PaidNow == 0 && b.out.PaidBefore > 0 { // a job that expects a payment every month has to hear of it
		a.Warn("paid now 0, done before %d, refused %d: a file is done once; to do it another time name that run with --run", b.out.PaidBefore, len(b.out.Refused))
	}
	if err := a.Show(b.out, func(t cli.Table) { batchTable(t, b.out) }); err != nil {
		return cli.Fail(cli.Classify(err).Code, "not_shown", "run the same command again: it does nothing twice and tells what became of the rows",
			"the batch was sent, and only what became of it could not be printed: %w", err)
	}
	switch {
	case len(b.out.Refused) > 0:
		a.Exit = cli.ExitSomeRefused
	case b.out.PaidNow == 0:
		a.Exit = cli.ExitNothingLeft
	}
	return nil
}

// mostRefused is how many refusals a person is shown; --json has all.
const mostRefused = 20

func batchTable(t cli.Table, d batchDoc) {
	t.Row("accepted", fmt.Sprintf("%d of %d", d.Accepted, d.Rows))
	t.Row("paid now", d.PaidNow)
	t.Row("done before", d.PaidBefore)
	t.Row("refused", len(d.Refused))
	t.Row("requests", d.Requests)
	t.Opt("state", d.State)
	for i, r := range d.Refused {
		if i == mostRefused {
			t.Row("", fmt.Sprintf("and %d more, see --json", len(d.Refused)-mostRefused))
			break
		}
		t.Row(fmt.Sprintf("line %d", r.Line), fmt.Sprintf("%s (%s)", r.Code, r.Reason))
	}
	if len(d.Refused) > 0 && d.State != "" {
		t.Row("next", "see to the cause, then run it with --retry-refused: it tries those again, and only those")
	}
}

package wallet

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wire/wallet"
)

// batchFlags are the flags of wallet batch.
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
		Short: "Execute the operations of a CSV or NDJSON file, each once, even if it is run again",
		Long: `Execute the operations of a file ("-" is stdin): NDJSON, or CSV with a header line. The
columns are op, from, to, asset, amount (decimal, 12.50) or amount_minor (minor units,
1250), nonce, expires_in_s, hold, memo, valid_until, reference; op is issue, transfer,
burn, hold, capture or release. The whole file is checked before anything is sent.

Each row has a permanent reference, and the ledger executes a reference once. So each row
is executed once, even if the file is run again after a crash, a kill or a lost
connection, in two terminals at once, or without its state file. References belong to the
principal of the token: sent with the token of another principal, the same file is
executed once more.

With --run NAME the reference of operation 17 is NAME/17. Rows may be added at the end. A
row that differs from the operation executed under its reference is refused with
reference_conflict. Without --run the reference is a hash of the row and of its place
among equal rows, whatever the name of the file: to pay the same rows again, use --run. A
row has the same hash by amount and by amount_minor, so the decimals of an asset must have
been set before its amounts may be decimal. If rows without --run were executed more than
a day ago and the state file does not list them, nothing more is sent. The column
reference sets the reference of a row.

FILE.state (or --state) records which rows were executed and which were refused. Only the
refusals cannot be found out without it. Rows are executed in the order of the file. A
refused row does not stop the others. With --atomic all rows, up to 4096, are executed or
none. --retry-refused sends refused rows again. The output separates rows that this run
has paid from rows that were executed earlier.

Rows that were executed in a period which the ledger has closed are counted as closed.
They are not executed again, and the file of the period has their receipts.

Exit codes, beside those of every verb: 20 all rows were executed earlier, and this run
paid none; 21 some rows were refused, or are closed; 22 the file is not a batch, and
nothing was sent.`,
		Example: `  ronbox wallet batch salaries.csv --run 2026-12
  ronbox wallet batch salaries.csv --run 2026-12 --atomic --json
  ronbox wallet batch refunds.csv
  generate | ronbox wallet batch - --run 2026-12`,
		Args: cli.Exactly(1, "one file"),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.atomic, "atomic", false, "execute all rows or none")
	fl.BoolVar(&f.retry, "retry-refused", false, "send rows again that were refused earlier")
	fl.IntVar(&f.chunk, "chunk", 1000, "at most `N` operations per request, 1 to 4096")
	fl.StringVar(&f.state, "state", "",
		"`file` that records executed and refused rows (default FILE.state, with --run FILE.NAME.state; none "+
			"for stdin)")
	fl.StringVar(&f.run, "run", "", "`name` of this run; under another name the same rows are executed once more")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		return a.batch(ctx, c, args[0], f)
	})
	return cmd
}

// runName leaves room for a slash and the number of an operation in a reference.
var runName = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,56}$`)

func (a app) batch(ctx context.Context, node batchNode, file string, f batchFlags) error {
	switch {
	case f.chunk < 1 || f.chunk > maxChunkOps:
		return cli.Usage("--chunk %d: want 1 to %d", f.chunk, maxChunkOps)
	case f.run != "" && !runName.MatchString(f.run):
		return cli.Usage("--run %q: must be 1 to 56 of the characters A-Z a-z 0-9 . _ : -", f.run)
	}
	rows, err := a.readBatch(ctx, node, file, f.run)
	if err != nil {
		return err
	}
	ownless := func(r batchRow) bool { return !r.own }
	if file == "-" && f.state == "" && f.run == "" && slices.ContainsFunc(rows, ownless) {
		return cli.Usage("stdin needs --state FILE, or --run NAME with a new name for each input: " +
			"rows equal to those of an earlier run with the same name are not executed again")
	}
	b := &batchRun{
		Repeater: a.Repeater(), batchState: newBatchState(rows, f.run, modeIndependent),
		node: node, path: statePath(file, &f), rows: rows, most: f.chunk, now: a.Now,
	}
	if f.atomic {
		b.Mode, b.most = modeAtomic, maxChunkOps
		if len(rows) > maxChunkOps || len(b.chunk(b.pending())) < len(rows) {
			return unfit("too_large", "omit --atomic, or split the file",
				"%d operations: one request holds %d and %s", len(rows), maxChunkOps, cli.Bytes(maxChunkBytes))
		}
	}
	resumed := false
	if b.path != "" {
		if resumed, err = b.load(b.path, rows); err != nil {
			return err
		}
	}
	if resumed {
		a.Say("of %d operations %d were done and %d refused earlier, according to %s", b.Rows, count(b.Done),
			len(b.Refused), b.path)
	}
	if f.retry { // what a closed period has executed is refused again
		b.Refused = slices.DeleteFunc(b.Refused, func(r refusedRow) bool { return !r.closed() })
	}
	p := a.Progress(cli.Count, "")
	b.done = func(settled, total int) { p.Stage("batch, operations"); p.At(int64(settled), int64(total)) }
	err = b.send(ctx)
	p.End()
	return a.showBatch(ctx, b, resumed, err)
}

// statePath returns where the state is kept, "" for nowhere.
func statePath(file string, f *batchFlags) string {
	switch {
	case f.state != "" || file == "-":
		return f.state
	case f.run != "":
		return file + "." + f.run + ".state"
	}
	return file + ".state"
}

// batchDoc is the output of wallet batch.
type batchDoc struct {
	Rows       int          `json:"rows"`
	Accepted   int          `json:"accepted"`
	Refused    []refusedRow `json:"refused"`
	Closed     []refusedRow `json:"closed,omitzero"` // executed earlier, in a period that the ledger has closed
	Requests   int          `json:"requests"`
	PaidNow    int          `json:"paid_now"`    // of those accepted, by this run
	PaidBefore int          `json:"paid_before"` // of those accepted, by earlier runs
	Before     []span       `json:"done_before"` // lines of those accepted that no state told of
	Resumed    bool         `json:"resumed"`     // an earlier run had begun
	State      string       `json:"state,omitzero"`
}

func (b *batchRun) doc(resumed bool) batchDoc {
	d := batchDoc{
		Rows: b.Rows, Accepted: count(b.Done), Refused: []refusedRow{}, Requests: b.requests, Resumed: resumed,
		State:      b.path,
		PaidBefore: b.earlier, PaidNow: count(b.Done) - b.earlier, Before: []span{},
	}
	for _, r := range b.Refused {
		if r.closed() {
			d.Closed = append(d.Closed, r)
		} else {
			d.Refused = append(d.Refused, r)
		}
	}
	for _, p := range b.Before {
		for i := p[0]; i <= p[1]; i++ {
			d.Before = addSpans(d.Before, b.rows[i].line)
		}
	}
	return d
}

// showBatch reports what became of the rows. err is why the batch was not sent to its end, if it
// was not.
func (a app) showBatch(ctx context.Context, b *batchRun, resumed bool, err error) error {
	d := b.doc(resumed)
	if err != nil {
		f := &cli.Failure{Err: err, Details: map[string]any{"batch": d}, Unsettled: true}
		if ctx.Err() != nil {
			f.Next = fmt.Sprintf("%d of %d operations were executed; %s", d.Accepted, d.Rows, runAgain)
		}
		return f
	}
	if !b.oldest.IsZero() {
		a.Warn("%d of %d operations were done earlier, the first at %s, by a run that is not in the state file: "+
			"they are not done again; to pay such rows again, put them into another file and use --run NAME",
			d.PaidBefore-b.told, d.Rows, b.oldest.UTC().Format(time.RFC3339))
	}
	if n := len(d.Closed); n > 0 {
		a.Warn("%d of %d operations were executed earlier, in a period that the ledger has closed: they are not "+
			"executed again, and the file of the period has their receipts; do not send them with another reference "+
			"or --run", n, d.Rows)
	}
	if d.PaidNow == 0 && d.PaidBefore > 0 { // a job that expects a payment every month has to hear of it
		a.Warn("paid now 0, done before %d, refused %d: "+
			"a file is executed once; to execute it again, use --run with a new name", d.PaidBefore, len(d.Refused))
	}
	if err := a.Show(d, func(t cli.Table) { batchTable(t, d) }); err != nil {
		return cli.Fail(cli.Classify(err).Code, "not_shown",
			"run the same command again: it executes no row twice and prints the outcome of each",
			"the batch was sent, but its outcome could not be printed: %w", err)
	}
	switch {
	case len(d.Refused)+len(d.Closed) > 0:
		a.Exit = cli.ExitSomeRefused
	case d.PaidNow == 0:
		a.Exit = cli.ExitNothingLeft
	}
	return nil
}

// mostRefused is the number of refusals in the table; --json has all.
const mostRefused = 20

func batchTable(t cli.Table, d batchDoc) {
	t.Row("accepted", fmt.Sprintf("%d of %d", d.Accepted, d.Rows))
	t.Row("paid now", d.PaidNow)
	t.Row("done before", d.PaidBefore)
	t.Row("refused", len(d.Refused))
	if n := len(d.Closed); n > 0 {
		t.Row("closed", n)
	}
	t.Row("requests", d.Requests)
	t.Opt("state", d.State)
	for i, r := range d.Refused {
		if i == mostRefused {
			t.Row("", fmt.Sprintf("and %d more, see --json", len(d.Refused)-mostRefused))
			break
		}
		t.Row(fmt.Sprintf("line %d", r.Line), r.Reason)
	}
	if len(d.Refused) > 0 && d.State != "" {
		t.Row("next", "fix the cause, then run the command with --retry-refused, which sends only the "+
			"refused rows again")
	}
}

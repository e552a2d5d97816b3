package wallet

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wallet"
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
		Short: "Do the operations of a CSV or NDJSON file, each once, however often it is run",
		Long: `Do the operations of a file, "-" being stdin: CSV whose first line names the columns, or
NDJSON. The columns are op, from, to, asset, amount_minor (minor units), nonce,
expires_in_s, hold, memo, valid_until, reference; op is issue, transfer, burn, hold,
capture or release. The whole file is checked before anything is sent.

Each row carries a permanent reference, and the ledger does a reference once: run the file
again after a crash, a kill or a lost connection, from two terminals at once, or without
its state, and each row is done once. With --run NAME the reference of operation 17 is
NAME/17. Rows may be added at the end; a row that says something else than what was done
under its reference is refused with REFERENCE_CONFLICT. Without --run a row is known by
what it says and by its place among the rows that say the same, whatever the name of the
file: another payment in the same words needs a --run. If such rows are found done more
than a day ago, and no state tells of them, nothing more is sent. A column reference gives
rows references of your own. References belong to the principal of the token: the same
file sent with the token of another principal is done once more.

FILE.state (or --state) keeps what was done and what was refused. It spares requests; only
the refusals stand nowhere else. Operations are done in the order of the file. One that is
refused keeps none of the others back, unless --atomic makes all or none of up to 4096;
--retry-refused tries again what was refused. A run tells apart what is paid now, by
itself, and what was done before, which it leaves alone.

Exit codes, beside those of every verb: 20 nothing was left to do, and paid now is 0; 21
some operations were refused; 22 the file is no batch, and nothing was sent.`,
		Example: `  ronbox wallet batch salaries.csv --run 2026-12
  ronbox wallet batch salaries.csv --run 2026-12 --atomic --json
  ronbox wallet batch refunds.csv
  generate | ronbox wallet batch - --run 2026-12`,
		Args: cli.Exactly(1, "one file"),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.atomic, "atomic", false, "all operations or none")
	fl.BoolVar(&f.retry, "retry-refused", false, "try again what an earlier run was refused")
	fl.IntVar(&f.chunk, "chunk", 1000, "at most this many operations a request, 1 to 4096")
	fl.StringVar(&f.state, "state", "",
		"`file` that keeps what was done (default FILE.state, with --run FILE.NAME.state; none for stdin)")
	fl.StringVar(&f.run, "run", "", "`name` of this run: under another name the same rows are done once more")
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
	rows, err := a.readBatch(file, f.run)
	if err != nil {
		return err
	}
	ownless := func(r batchRow) bool { return !r.own }
	if file == "-" && f.state == "" && f.run == "" && slices.ContainsFunc(rows, ownless) {
		return cli.Usage("stdin needs --state FILE, or --run NAME where it is done anew each time: " +
			"rows that say what an earlier run of a name did are taken as done")
	}
	b := &batchRun{
		Repeater: a.Repeater(), batchState: newBatchState(rows, f.run, modeIndependent),
		node: node, path: statePath(file, &f), rows: rows, most: f.chunk, now: a.Now,
	}
	if f.atomic {
		b.Mode, b.most = modeAtomic, maxChunkOps
		if len(rows) > maxChunkOps || len(b.chunk(b.pending())) < len(rows) {
			return unfit("too_large", "leave --atomic out, or split the file",
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
		a.Say("of %d operations %d were done and %d refused before, as %s says", b.Rows, count(b.Done), len(b.Refused),
			b.path)
	}
	if f.retry {
		b.Refused = []refusedRow{}
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
	Requests   int          `json:"requests"`
	PaidNow    int          `json:"paid_now"`    // of those accepted, by this run
	PaidBefore int          `json:"paid_before"` // of those accepted, by earlier runs
	Before     []span       `json:"done_before"` // lines of those accepted that no state told of
	Resumed    bool         `json:"resumed"`     // an earlier run had begun
	State      string       `json:"state,omitzero"`
}

func (b *batchRun) doc(resumed bool) batchDoc {
	d := batchDoc{
		Rows: b.Rows, Accepted: count(b.Done), Refused: b.Refused, Requests: b.requests, Resumed: resumed,
		State:      b.path,
		PaidBefore: b.earlier, PaidNow: count(b.Done) - b.earlier, Before: []span{},
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
			f.Next = fmt.Sprintf("%d of %d operations were done before; %s", d.Accepted, d.Rows, runAgain)
		}
		return f
	}
	if !b.oldest.IsZero() {
		a.Warn("%d of %d operations were done before, the first at %s, by a run that no state here tells of: "+
			"they are not done again; rows that are meant again go into a file of their own with --run NAME",
			d.PaidBefore-b.told, d.Rows, b.oldest.UTC().Format(time.RFC3339))
	}
	if d.PaidNow == 0 && d.PaidBefore > 0 { // a job that expects a payment every month has to hear of it
		a.Warn("paid now 0, done before %d, refused %d: "+
			"a file is done once; to do it another time name that run with --run", d.PaidBefore, len(d.Refused))
	}
	if err := a.Show(d, func(t cli.Table) { batchTable(t, d) }); err != nil {
		return cli.Fail(cli.Classify(err).Code, "not_shown",
			"run the same command again: it does nothing twice and tells what became of the rows",
			"the batch was sent, and only what became of it could not be printed: %w", err)
	}
	switch {
	case len(d.Refused) > 0:
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

package wallet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// eventsFlags select payments.
type eventsFlags struct {
	after       uint64
	follow      bool
	asset, acct string
	ops         []string
}

func (a app) eventsCmd() *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List the payments of all accounts by their place in the ledger, and follow new ones",
		Long: `List the payments of all accounts, oldest first, one line per payment. --follow also
prints new ones as they are committed, until Ctrl-C. A broken connection is resumed, and
no payment is missed or printed twice.

Each line begins with the record of the payment in the ledger. A program that keeps the
last record that it has processed continues with --after. With --json a line is the event
as GET /v1/events sends it.`,
		Example: `  ronbox wallet events --account alice --op transfer,capture
  ronbox wallet events --after 41 --follow --json | jq -r .data.receipt.txid`,
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.after, "after", 0, "begin after this `record` of the ledger (default with the first)")
	fl.BoolVar(&f.follow, "follow", false, "also print new payments, until Ctrl-C")
	fl.StringVar(&f.acct, "account", "", "only those of this `account`")
	fl.StringVar(&f.asset, "asset", "", "only those in this `asset`")
	fl.StringSliceVar(&f.ops, "op", nil, "only these `operations`, separated by commas (default all that move money)")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, _ []string) error { return a.events(ctx, c, f) })
	return cmd
}

func (f *eventsFlags) check() error {
	if f.acct != "" {
		if err := checkAccount(f.acct); err != nil {
			return err
		}
	}
	if f.asset != "" {
		if err := checkAsset("--asset", f.asset); err != nil {
			return err
		}
	}
	for _, word := range f.ops {
		if op, err := record.ParseOp(word); err != nil || !op.MovesMoney() {
			return cli.Usage("--op %q: want issue, transfer, burn, hold, capture, release or expire", word)
		}
	}
	return nil
}

// events prints payments up to the head of the ledger, or follows them.
func (a app) events(ctx context.Context, c walletapi.Client, f eventsFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	head, err := c.LedgerHead(ctx)
	if err != nil {
		return err
	}
	q := walletapi.PaymentsQuery{Account: f.acct, Asset: f.asset, Ops: strings.Join(f.ops, ",")}
	p := eventPrinter{app: a, c: c}
	from := a.Following(strconv.FormatUint(f.after, 10), 0)
	err = c.Events(ctx, q, from, func(e client.Event) error {
		if err := p.print(ctx, e); err != nil {
			return err
		}
		if seq, err := strconv.ParseUint(e.ID, 10, 64); err == nil && seq >= head.Seq && !f.follow {
			return client.ErrStop
		}
		return nil
	})
	return cli.UntilCtrlC(ctx, err)
}

// eventPrinter prints payments at once, without a table, which would wait for all of them.
type eventPrinter struct {
	app
	c     assetLister
	d     decimals
	asked time.Time // when d was read, or could not be
}

// askAgain is the time after which the decimals are asked for again if those of an asset are not
// known: it was declared since, or they could not be read.
const askAgain = 30 * time.Second

// learn reads the decimals, unless those of asset are known or were asked for just now.
func (p *eventPrinter) learn(ctx context.Context, asset string) {
	if _, known := p.d[asset]; known || time.Since(p.asked) < askAgain {
		return
	}
	p.d, p.asked = p.shownDecimals(ctx, p.c), time.Now()
}

func (p *eventPrinter) print(ctx context.Context, e client.Event) error {
	switch {
	case e.Name == "": // it has only an id
		return nil
	case e.Name == wire.EventShutdown:
		p.Say("the node is shutting down")
		return nil
	case p.Flags.JSON:
		return p.Print(append(e.Data[:len(e.Data):len(e.Data)], '\n'))
	case p.Flags.Quiet:
		return nil
	}
	var event walletapi.Event
	if err := json.Unmarshal(e.Data, &event); err != nil {
		return fmt.Errorf("event %s: %w", e.Name, err)
	}
	r, err := record.ParseReceipt(event.Data.Receipt)
	if err != nil {
		return unsoundReceipt(err)
	}
	p.learn(ctx, r.Asset)
	line := fmt.Sprintf("%-7d %s  %-8s  %s  %s", event.Data.Seq, cli.FormatStamp(time.Unix(0, r.At)), r.Op,
		p.d.show(r.Amount.String(), r.Asset), strings.TrimSpace(r.From+" -> "+r.To))
	if event.Data.Memo != "" {
		line += "  " + event.Data.Memo
	}
	return p.Print([]byte(cli.Plain(line) + "\n"))
}

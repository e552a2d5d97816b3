package wallet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

// maxRenewed is how often a nonce that another writer took is chosen anew.
const maxRenewed = 5

// codeNonce is the wallet's code for a nonce that is used up, or that comes too early.
const codeNonce = "NONCE_CONFLICT"

// codeIdem is its code for a key that was used for another request.
const codeIdem = "IDEMPOTENCY_CONFLICT"

// sendFlags are the flags of every verb that changes something.
type sendFlags struct {
	key        string
	asset      string
	nonce      uint64
	memo       string
	validUntil string
	given      func() bool // --nonce stands on the command line; nil where no nonce is taken
}

// keyFlag adds --key alone, for what takes no nonce.
func (f *sendFlags) keyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "idempotency `key` of an earlier call, to repeat it safely")
}

// add adds the flags of an operation that takes a nonce.
func (f *sendFlags) add(cmd *cobra.Command) {
	f.keyFlag(cmd)
	assetFlag(cmd, &f.asset)
	f.given = func() bool { return cmd.Flags().Changed("nonce") }
	cmd.Flags().Uint64Var(&f.nonce, "nonce", 0, "the `number` of this debit (default the next)")
	cmd.Flags().StringVar(&f.memo, "memo", "", "`words` kept with it for ever")
	cmd.Flags().StringVar(&f.validUntil, "valid-until", "", "refuse it from this `time` on (RFC 3339)")
}

// check refuses flags that no node would take.
func (f *sendFlags) check() error {
	if f.key != "" {
		if err := record.CheckIdem(f.key); err != nil {
			return cli.Usage("--key %q: %w", f.key, err)
		}
	}
	if f.nonce == 0 && f.given != nil && f.given() {
		return cli.Usage("--nonce 0: nonces begin with 1; leave it out to have the next one looked up")
	}
	_, err := parseTime("--valid-until", f.validUntil)
	return err
}

// order is one change to ask for.
type order struct {
	payer string            // the account whose nonce it takes; "" for none
	op    walletapi.BatchOp // what its posting must show, its nonce aside; none for what posts nothing
	post  func(ctx context.Context, key string, nonce uint64) (walletapi.Posted, error)
}

// order asks c for o and shows the receipt.
func (a app) order(ctx context.Context, c walletapi.Client, f *sendFlags, o order) error {
	if err := f.check(); err != nil {
		return err
	}
	s := &sender{Repeater: a.Repeater(), flags: f, account: c.Account, node: c, tell: a.printKey}
	got, err := s.send(ctx, o)
	if err != nil {
		return err
	}
	if got.Replayed {
		a.Say("it had been done before: this is the receipt of then")
	}
	if err := a.showReceipt(got.Raw); err != nil {
		return notShown(got.Raw, err)
	}
	return nil
}

// notShown is the failure to print a receipt. It says that the change was made: a person who takes it for a refusal pays twice.
func notShown(receipt []byte, err error) error {
	r, parseErr := record.ParseReceipt(receipt)
	if parseErr != nil {
		return err
	}
	return cli.Fail(cli.Classify(err).Code, "not_shown", "do not send it again: `ronbox wallet tx "+r.TxID.String()+"` shows the receipt",
		"it was done, and only the receipt could not be printed: %w", err)
}

// printKey prints the key before it is used, with --json too: if the answer is lost, the call is repeated with it.
func (a app) printKey(key string) {
	if !a.Flags.Quiet {
		fmt.Fprintf(a.Stderr, "key %s (the same command with it as --key repeats this safely)\n", key)
	}
}

// sender makes a change happen once, whatever becomes of the answers. It belongs to one goroutine.
type sender struct {
	cli.Repeater
	flags   *sendFlags
	account func(ctx context.Context, account string) (walletapi.Account, error)
	node    statements
	tell    func(key string)
}

// send sends o until there is an answer. A nonce is chosen again only if the sender chose it, under a key of which no
// answer was lost.
func (s *sender) send(ctx context.Context, o order) (got walletapi.Posted, err error) {
	for range maxRenewed {
		nonce, chosen, err := s.nonce(ctx, o)
		if err != nil {
			return got, err
		}
		key := cmp.Or(s.flags.key, newKey(nonce))
		s.tell(key)
		lost := false
		err = s.Repeat(ctx, "send", func() (err error) {
			got, err = o.post(ctx, key, nonce)
			lost = lost || outcomeUnknown(err)
			if hasCode(err, codeNonce) {
				return &cli.Final{Err: err} // waiting does not help
			}
			return err
		})
		taken, conflict := errors.AsType[*cli.Final](err)
		if conflict {
			err = taken.Err
		}
		if lost || s.flags.key != "" {
			if was := s.recallReceipt(ctx, err, o, key, nonce); was != nil {
				return walletapi.Posted{Raw: was, Replayed: true}, nil
			}
		}
		switch {
		case conflict && chosen && !lost:
			s.Retrying("nonce %d: %v; choosing another", nonce, err)
		default:
			return got, explain(err, key, lost)
		}
	}
	return got, cli.Fail(cli.ExitBusy, "nonce_taken", "find out who else spends from it, then try again",
		"the next nonce of %s was taken by another %d times", o.payer, maxRenewed)
}

// nonce is the nonce to send: that of the flags, that in the key of an earlier call or sent with it, or the account's next.
func (s *sender) nonce(ctx context.Context, o order) (nonce uint64, chosen bool, err error) {
	if o.payer == "" {
		return 0, false, nil
	}
	if s.flags.nonce != 0 {
		return s.flags.nonce, false, nil
	}
	if n, ok := nonceIn(s.flags.key); ok {
		return n, false, nil
	}
	if s.flags.key != "" {
		if was, err := s.findPosting(ctx, o.op, func(p *posting) bool { return p.Idem == s.flags.key }); err != nil || was != nil {
			return nonceOf(was), false, err
		}
	}
	err = s.Repeat(ctx, "look up the nonce", func() error {
		acc, err := s.account(ctx, o.payer)
		nonce = acc.NextNonce
		return err
	})
	return nonce, s.flags.key == "", err
}

// newKey makes a key that nobody has used. It holds the nonce, so that a repeat with the key alone asks for the same.
func newKey(nonce uint64) string {
	id := ulid.MustNew(ulid.Now(), rand.Reader).String()
	if nonce == 0 {
		return "cli-" + id
	}
	return "cli-" + cli.Decimal(nonce) + "-" + id
}

var keyWithNonce = regexp.MustCompile(`^cli-([1-9][0-9]{0,19})-[0-9A-HJKMNP-TV-Z]{26}$`)

// nonceIn reads the nonce out of a key that newKey made.
func nonceIn(key string) (uint64, bool) {
	m := keyWithNonce.FindStringSubmatch(key)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

// outcomeUnknown reports whether the request may have been carried out in spite of err.
func outcomeUnknown(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return p.Unknown()
	}
	return errors.Is(err, client.ErrUnknown)
}

func hasCode(err error, code string) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Code == code
}

// explain adds to the failure of a request how to find out whether it was done.
func explain(err error, key string, lost bool) error {
	if err == nil {
		return nil
	}
	f := &cli.Failure{Err: err, Details: map[string]any{"idempotency_key": key}, Unsettled: lost}
	switch p, refused := errors.AsType[*wire.Problem](err); {
	case lost:
		f.Next = "whether it was done is not known: the same command with --key " + key + " does it if it was not, and shows its receipt if it was"
	case refused && p.Code == codeIdem:
		f.Next = "the key was used for another request, see `ronbox wallet history`: repeat that one as it was, its --nonce too; what is new takes a new key"
	case refused && p.Code == codeNonce:
		f.Next = "`ronbox wallet seq` shows the next nonce, which is taken where --nonce and --key are left out; `ronbox wallet history` shows what has used this one"
	case errors.Is(err, client.ErrNotReachable):
		f.Next = cli.Classify(err).Next + "; nothing was done: then try again with --key " + key
	case cli.Transient(err):
		f.Next = "nothing was done: try again with --key " + key
	}
	return f
}

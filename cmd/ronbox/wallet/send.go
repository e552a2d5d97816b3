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
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// sendFlags are the flags of every verb that changes something.
type sendFlags struct {
	key        string
	reference  string
	asset      string
	nonce      uint64
	memo       string
	validUntil string
	minor      bool        // AMOUNT is in minor units
	existing   bool        // refuse a new payee
	fresh      bool        // pay a new payee without a look
	given      func() bool // --nonce stands on the command line; nil where no nonce is taken
}

// keyFlag adds --idempotency-key alone, for verbs that take no nonce.
func (f *sendFlags) keyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "idempotency `key` of an earlier call, to repeat it safely")
}

// minorFlag adds --minor, for verbs that take an amount.
func (f *sendFlags) minorFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.minor, "minor", false, "AMOUNT is a whole number of minor units")
}

// payeeFlags adds the flags that say how to meet a new payee.
func (f *sendFlags) payeeFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.existing, "existing", false, "refuse a payee that is a new account")
	cmd.Flags().BoolVar(&f.fresh, "new", false, "pay a new account without question or note")
}

// add adds the flags of an operation that takes a nonce.
func (f *sendFlags) add(cmd *cobra.Command) {
	f.keyFlag(cmd)
	f.minorFlag(cmd)
	assetFlag(cmd, &f.asset)
	f.given = func() bool { return cmd.Flags().Changed("nonce") }
	cmd.Flags().Uint64Var(&f.nonce, "nonce", 0, "nonce of this debit, a `number` (default: the node assigns "+
		"the next one)")
	cmd.Flags().StringVar(&f.reference, "reference", "",
		"permanent `id` such as an invoice number; the operation is executed once under it (default the key)")
	cmd.Flags().StringVar(&f.memo, "memo", "", "`text` that is stored with the operation for ever")
	cmd.Flags().StringVar(&f.validUntil, "valid-until", "", "refuse the operation from this `time` on (RFC 3339)")
}

// check refuses flags that no node would take.
func (f *sendFlags) check() error {
	if f.key != "" {
		if err := record.CheckIdem(f.key); err != nil {
			return cli.Usage("--idempotency-key %q: %w", f.key, err)
		}
	}
	if f.reference != "" {
		if err := record.CheckReference(f.reference); err != nil {
			return cli.Usage("--reference %q: %w", f.reference, err)
		}
	}
	if f.existing && f.fresh {
		return cli.Usage("--existing and --new exclude each other")
	}
	if f.nonce == 0 && f.given != nil && f.given() {
		return cli.Usage("--nonce 0: nonces begin with 1; leave it out to have the next one assigned")
	}
	_, err := parseTime("--valid-until", f.validUntil)
	return err
}

// identify sets the nonce and the reference of op under a key. The key is the reference unless the
// command line has one, so that a repetition is safe for ever, although the node forgets keys. A
// key that an earlier release printed holds the nonce that was sent with it, and had no reference.
func (f *sendFlags) identify(op *walletapi.BatchOp, key string) {
	op.Nonce, op.Reference = f.nonce, cmp.Or(f.reference, key)
	if n, ok := nonceIn(key); ok && f.nonce == 0 && f.reference == "" && payerOf(op) != "" {
		op.Nonce, op.Reference = n, ""
	}
}

var keyWithNonce = regexp.MustCompile(`^cli-([1-9][0-9]{0,19})-[0-9A-HJKMNP-TV-Z]{26}$`)

// nonceIn reads the nonce in a key of an earlier release.
func nonceIn(key string) (uint64, bool) {
	m := keyWithNonce.FindStringSubmatch(key)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

// poster asks a node for one change under a key.
type poster func(ctx context.Context, key string) (walletapi.Posted, error)

// order makes one change and shows the receipt. The flags were checked.
func (a app) order(ctx context.Context, c walletapi.Client, f *sendFlags, post poster) error {
	s := &sender{Repeater: a.Repeater(), key: f.key, tell: a.printKey}
	got, err := s.send(ctx, post)
	if err != nil {
		return err
	}
	if got.Replayed {
		a.Say("the operation was executed earlier: this is its receipt")
	}
	if err := a.showReceipt(ctx, c, got.Raw); err != nil {
		return notShown(got.Raw, err)
	}
	return nil
}

// notShown is the failure to print a receipt. It says that the change was made: a person who takes
// it for a refusal pays twice.
func notShown(receipt []byte, err error) error {
	r, parseErr := record.ParseReceipt(receipt)
	if parseErr != nil {
		return err
	}
	return cli.Fail(
		cli.Classify(err).Code,
		"not_shown",
		"do not send it again: `ronbox wallet tx "+r.TxID.String()+"` shows the receipt",
		"the operation was executed, but the receipt could not be printed: %w",
		err,
	)
}

func unsoundReceipt(err error) error {
	return cli.Fail(cli.ExitBad, "node_inconsistent", "compare it with `ronbox ledger proof`",
		"the node's answer is not a valid receipt: %w", err)
}

// printKey prints the key before it is used, with --json too: if the answer is lost, the call is
// repeated with it.
func (a app) printKey(key string) {
	if !a.Flags.Quiet {
		fmt.Fprintf(a.Stderr, "key %s (pass it as --idempotency-key to repeat the command safely)\n", key)
	}
}

// sender makes a change happen once, whatever becomes of the answers. It belongs to one goroutine.
type sender struct {
	cli.Repeater
	key  string // of an earlier call, "" for a new one
	tell func(key string)
}

// send sends a change until there is an answer.
func (s *sender) send(ctx context.Context, post poster) (got walletapi.Posted, err error) {
	key := cmp.Or(s.key, newKey())
	s.tell(key)
	lost := false
	err = s.Repeat(ctx, "send", func() (err error) {
		got, err = post(ctx, key)
		lost = lost || outcomeUnknown(err)
		if wrongNonce(err) {
			return &cli.Final{Err: err} // waiting does not help
		}
		return err
	})
	if final, ok := errors.AsType[*cli.Final](err); ok {
		err = final.Err
	}
	return got, explain(err, key, lost)
}

// newKey returns a key that was never used.
func newKey() string { return "cli-" + ulid.MustNew(ulid.Now(), rand.Reader).String() }

// outcomeUnknown reports whether the request may have been carried out in spite of err.
func outcomeUnknown(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return p.Unknown()
	}
	return errors.Is(err, client.ErrUnknown)
}

// wrongNonce reports whether the node refused the nonce.
func wrongNonce(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && (p.Reason == record.NonceReused.String() || p.Reason == record.NonceGap.String())
}

// explain adds to the failure of a request how to find out whether it was done.
func explain(err error, key string, lost bool) error {
	if err == nil {
		return nil
	}
	f := &cli.Failure{Err: err, Details: map[string]any{"idempotency_key": key}, Unsettled: lost}
	switch {
	case lost:
		f.Next = "the outcome is not known: repeat the command with --idempotency-key " + key +
			", which executes it if it was not executed, and otherwise prints its receipt"
	case errors.Is(err, client.ErrNotReachable):
		f.Next = cli.Classify(err).Next + "; nothing was done: then try again with --idempotency-key " + key
	case wrongNonce(err):
	case cli.Transient(err):
		f.Next = "nothing was done: try again with --idempotency-key " + key
	}
	return f
}

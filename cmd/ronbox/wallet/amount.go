package wallet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// checkAmount checks an AMOUNT of the command line before the decimals of its asset are known.
func checkAmount(text string, minor bool) error {
	most := engines.MaxDecimals
	if minor {
		most = 0
	}
	a, err := engines.ParseDecimal(text, most)
	switch {
	case errors.Is(err, engines.ErrLarge) && !minor: // with fewer decimals it may fit
	case errors.Is(err, engines.ErrPrecision) && minor:
		return notAmount(text, "minor units have no point")
	case err != nil:
		return notAmount(text, err.Error())
	case a.IsZero():
		return notAmount(text, wantMore)
	}
	return nil
}

const wantMore = "must be above 0"

func notAmount(text, reason string) error { return cli.Usage("%q is not an amount: %s", text, reason) }

// decimals are the numbers of digits that assets have after the point, by asset.
type decimals map[string]int

// assetLister is the part of walletapi.Client that reads decimals.
type assetLister interface {
	Assets(ctx context.Context) (walletapi.AssetList, error)
	HoldInfo(ctx context.Context, txid string) (walletapi.HoldInfo, error)
}

// readDecimals asks the node for the decimals of its assets. set holds the assets whose decimals
// will never change.
func readDecimals(ctx context.Context, c assetLister) (d decimals, set map[string]bool, err error) {
	list, err := c.Assets(ctx)
	if err != nil {
		return nil, nil, err
	}
	d, set = decimals{}, map[string]bool{}
	for _, as := range list.Assets {
		if as.Decimals < 0 || as.Decimals > engines.MaxDecimals {
			return nil, nil, inconsistent("the node's answer is not valid: %s has %d decimals", as.Asset, as.Decimals)
		}
		d[as.Asset], set[as.Asset] = as.Decimals, as.DecimalsSet || as.Decimals > 0
	}
	return d, set, nil
}

// shownDecimals returns the decimals for a table that a person reads, else nil. A token that may
// not read shows minor units.
func (a app) shownDecimals(ctx context.Context, c assetLister) decimals {
	if a.Flags.JSON || a.Flags.Quiet {
		return nil
	}
	d, _, _ := readDecimals(ctx, c) // minor units are right too
	return d
}

// toMinor replaces the amount that the command line gives op by minor units, which it is already if
// minor.
func (a app) toMinor(ctx context.Context, c assetLister, op *walletapi.BatchOp, minor bool) (err error) {
	if op.AmountMinor == "" || minor {
		return nil
	}
	m := converter{app: a, node: c, instead: "give the amount in minor units, with --minor"}
	text := op.AmountMinor
	op.AmountMinor, err = m.minor(ctx, op, text)
	bad, wrong := errors.AsType[*httpapi.BodyError](err)
	switch {
	case !wrong:
		return err
	case bad.Field == "asset":
		return cli.Fail(cli.ExitFailed, "asset_unknown", adviceOn("asset_unknown"),
			"nothing was sent: %s %s", op.Asset, bad.Reason)
	case bad.Field == "hold":
		return cli.Fail(cli.ExitFailed, "hold_unknown", adviceOn("hold_unknown"),
			"nothing was sent: %s %s", op.Hold, bad.Reason)
	}
	return notAmount(text, bad.Reason)
}

// converter converts decimal amounts to minor units. It belongs to one goroutine.
type converter struct {
	app
	node    assetLister
	instead string   // what to do if the decimals cannot be read
	final   bool     // an amount must mean the same number of minor units for ever
	all     decimals // nil until they are needed
	set     map[string]bool
}

// minor returns the minor units of an amount of op: in its asset or, if it is a capture, in that of
// the hold. It returns an *httpapi.BodyError if a member of op is at fault.
func (m *converter) minor(ctx context.Context, op *walletapi.BatchOp, text string) (string, error) {
	if m.Flags.PrintCurl {
		return "", cli.Fail(cli.ExitUsage, "usage", m.instead,
			"--print-curl sends nothing, so the decimals of the asset are not known")
	}
	asset := op.Asset
	r := m.Repeater()
	err := r.Repeat(ctx, "read the decimals of the asset", func() (err error) {
		if op.Hold != "" {
			var h walletapi.HoldInfo
			if h, err = m.node.HoldInfo(ctx, op.Hold); err != nil {
				return err
			}
			asset = h.Asset
		}
		if m.all == nil {
			m.all, m.set, err = readDecimals(ctx, m.node)
		}
		return err
	})
	if err != nil {
		return "", m.unread(err)
	}
	if _, known := m.all[asset]; !known {
		return "", httpapi.BadBody("asset", "is not declared, or not an asset of the token")
	}
	minor, err := m.all.parse(text, asset)
	if err == nil && m.final && !m.set[asset] {
		return "", httpapi.BadBody("amount", "the decimals of "+asset+" were never set, and would change what the row "+
			"pays: set them with `ronbox wallet assets --declare "+asset+" --decimals N`, or use amount_minor or --run")
	}
	return minor, err
}

// unread returns the failure to read the decimals of an amount. Without them 12 may be 12.00 or
// 0.12, so nothing is sent.
func (m *converter) unread(err error) error {
	p, refused := errors.AsType[*wire.Problem](err)
	if refused && p.Status == http.StatusNotFound {
		return httpapi.BadBody("hold", "does not exist, or the token may not see it")
	}
	f := &cli.Failure{Err: fmt.Errorf("nothing was sent: the decimals of the amount cannot be read: %w", err)}
	if refused && p.Status == http.StatusForbidden {
		f.Next = m.instead + ", or use a token that may read them"
	}
	return f
}

// parse returns the minor units of an amount above 0. It returns an *httpapi.BodyError for another
// text. asset must be in d.
func (d decimals) parse(text, asset string) (minor string, err error) {
	n := d[asset]
	a, err := engines.ParseDecimal(text, n)
	switch {
	case errors.Is(err, engines.ErrPrecision):
		return "", httpapi.BadBody("amount", asset+" has "+digits(n)+" after the point")
	case err != nil:
		return "", httpapi.BadBody("amount", err.Error())
	case a.IsZero():
		return "", httpapi.BadBody("amount", wantMore)
	}
	return a.String(), nil
}

func digits(n int) string {
	switch n {
	case 0:
		return "no digits"
	case 1:
		return "1 digit"
	}
	return strconv.Itoa(n) + " digits"
}

// bare formats an amount without its asset.
func (d decimals) bare(minor, asset string) string { return ledger.FormatAmount(minor, d[asset]) }

// show formats an amount and its asset. Minor units are marked if the decimals are not known.
func (d decimals) show(minor, asset string) string {
	if _, known := d[asset]; !known {
		return ledger.FormatMinor(minor, asset)
	}
	return d.bare(minor, asset) + " " + asset
}

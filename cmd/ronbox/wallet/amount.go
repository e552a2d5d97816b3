package wallet

import (
	"context"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/engines"
	walletapi "ronbox/httpapi/wire/wallet"
)

// largestAmount is 2^128-1.
const largestAmount = "340282366920938463463374607431768211455"

// checkAmount checks an amount in minor units: a whole number above 0.
func checkAmount(s string) error {
	n, err := engines.ParseAmount(s)
	if err != nil && len(s) >= len(largestAmount) && s[0] != '0' && strings.Trim(s, "0123456789") == "" {
		return cli.Usage("%q is too large: the largest amount is %s", s, largestAmount)
	}
	if err != nil || n.IsZero() {
		return notAmount(s, "want a whole number of minor units above 0, such as 1000")
	}
	return nil
}

func notAmount(s, want string) error { return cli.Usage("%q is not an amount: %s", s, want) }

// hasPoint reports whether s is digits, a point and digits.
func hasPoint(s string) bool {
	whole, part, found := strings.Cut(s, ".")
	return found && whole != "" && part != "" && strings.Trim(whole+part, "0123456789") == ""
}

// checkAmountText is checkAmount before the decimals of the asset are known.
func checkAmountText(s string) error {
	if hasPoint(s) {
		return nil
	}
	return checkAmount(s)
}

// decimals are the digits after the point that assets have for people, by asset.
type decimals map[string]int

// readDecimals asks the node for the decimals of its assets.
func readDecimals(ctx context.Context, c walletapi.Client) (decimals, error) {
	list, err := c.Assets(ctx)
	if err != nil {
		return nil, err
	}
	out := decimals{}
	for _, as := range list.Assets {
		out[as.Asset] = as.Decimals
	}
	return out, nil
}

// shownDecimals returns the decimals for a table that a person reads, else nil. A token that may
// not read shows minor units.
func (a app) shownDecimals(ctx context.Context, c walletapi.Client) decimals {
	if a.Flags.JSON || a.Flags.Quiet {
		return nil
	}
	d, _ := readDecimals(ctx, c) // minor units are right too
	return d
}

// toMinor replaces an amount with a point by minor units.
func toMinor(ctx context.Context, c walletapi.Client, op *walletapi.BatchOp) error {
	if !hasPoint(op.AmountMinor) {
		return nil
	}
	asset := op.Asset
	if op.Hold != "" {
		h, err := c.HoldInfo(ctx, op.Hold)
		if err != nil {
			return err
		}
		asset = h.Asset
	}
	d, err := readDecimals(ctx, c)
	if err != nil {
		return err
	}
	op.AmountMinor, err = d.parse(op.AmountMinor, asset)
	return err
}

// parse returns the minor units of an amount with a point.
func (d decimals) parse(s, asset string) (minor string, err error) {
	n := d[asset]
	whole, part, _ := strings.Cut(s, ".")
	switch {
	case n == 0:
		return "", checkAmount(s)
	case len(part) > n:
		return "", notAmount(s, asset+" has "+cli.Decimal(uint64(n))+" digits after the point")
	}
	minor = strings.TrimLeft(whole+part+strings.Repeat("0", n-len(part)), "0")
	if minor == "" {
		return "", notAmount(s, "it must be above 0")
	}
	if err := checkAmount(minor); err != nil {
		return "", err
	}
	return minor, nil
}

// bare shows an amount without its asset.
func (d decimals) bare(minor, asset string) string {
	n := d[asset]
	if n == 0 {
		return minor
	}
	if len(minor) <= n {
		minor = strings.Repeat("0", n+1-len(minor)) + minor
	}
	return minor[:len(minor)-n] + "." + minor[len(minor)-n:]
}

// show shows an amount and its asset.
func (d decimals) show(minor, asset string) string {
	if d[asset] == 0 {
		return ledger.FormatMinor(minor, asset)
	}
	return d.bare(minor, asset) + " " + asset
}

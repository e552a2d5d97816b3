package wallet

import (
	"context"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

// names completes the placeholders of the verbs of the wallet.
func names() map[string]cli.Names {
	return map[string]cli.Names{
		"ACCOUNT": accountNames, "FROM": accountNames, "TO": accountNames, "ASSET": assetNames,
		"AMOUNT": nil, "TXID": nil,
	}
}

func accountNames(ctx context.Context, c *client.Client, typed string) (out []string, err error) {
	page, err := walletapi.NewClient(c).Accounts(ctx, typed, "", cli.MostNames)
	for _, a := range page.Accounts {
		out = append(out, a.Account)
	}
	return out, err
}

func assetNames(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := walletapi.NewClient(c).Assets(ctx)
	for _, a := range all.Assets {
		out = append(out, a.Asset)
	}
	return out, err
}

package wallet

import (
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
)

// Command returns the command group of the wallet.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	group := cli.Group("wallet", "Hold, move and list money",
		a.balanceCmd(), a.accountCmd(), a.historyCmd(), a.eventsCmd(), a.holdsCmd(), a.txCmd(), a.seqCmd(),
		a.assetsCmd(), a.issueCmd(), a.transferCmd(), a.burnCmd(), a.holdCmd(), a.captureCmd(), a.releaseCmd(),
		a.batchCmd(), a.freezeCmd(), a.unfreezeCmd(),
	)
	a.Complete(group, names())
	return group
}

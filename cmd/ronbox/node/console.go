package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/console"
	nodeapi "ronbox/httpapi/node"
)

// consoleFlags are the flags of console.
type consoleFlags struct {
	write bool
	ttl   time.Duration
	print bool
}

func (a app) consoleCmd() *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the node's pages in a browser",
		Long: `Open the node's pages in a browser.

The node gives a code over its admin socket. The browser shows the code to the
node once, within a minute, and gets a session with the rights that uds.map
gives to you. The session may only look unless --write is given.

Where there is no browser, --print shows the URL. Over ssh, forward the node's
port first: ssh -L 8080:127.0.0.1:8080 HOST`,
		Example: `  ronbox --data-dir data console
  ronbox --data-dir data console --write --ttl 30m
  ronbox --data-dir data console --print`,
		Args: cobra.NoArgs,
		RunE: a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error { return a.console(ctx, c, f) }),
	}
	cmd.Flags().BoolVar(&f.write, "write", false, "let the session change things")
	cmd.Flags().DurationVar(&f.ttl, "ttl", console.MaxLife, "longest life of the session, up to 8h")
	cmd.Flags().BoolVar(&f.print, "print", false, "print the URL instead of opening a browser")
	return cmd
}

// opened is the result of console.
type opened struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a app) console(ctx context.Context, c nodeapi.Client, f consoleFlags) error {
	if f.ttl < time.Second || f.ttl > console.MaxLife {
		return cli.Usage("--ttl must be 1s to 8h")
	}
	link, err := console.NewLink(ctx, c.Client, console.Link{Write: f.write, TTLS: uint64(f.ttl / time.Second)})
	if err != nil {
		return err
	}
	if !f.print && !a.Flags.JSON {
		if err := openBrowser(link.URL); err == nil {
			a.Say("a browser opens the console; the code in its address is accepted once, until %s",
				link.ExpiresAt.Local().Format(time.TimeOnly))
			return nil
		}
	}
	return a.Show(opened{link.URL, link.ExpiresAt}, func(t cli.Table) { t.Row(link.URL) })
}

// openBrowser opens a page that leads to url: the arguments of a process are public, the file is
// not.
func openBrowser(url string) error {
	open, err := exec.LookPath("xdg-open")
	if err != nil || os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return fmt.Errorf("no browser: %w", err)
	}
	dir, err := os.MkdirTemp("", "ronbox-console") // 0700
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "console.html")
	page := `<!doctype html><meta http-equiv="refresh" content="0;url=` + url + `"><title>ronbox</title>`
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return err
	}
	return exec.Command(open, file).Start()
}

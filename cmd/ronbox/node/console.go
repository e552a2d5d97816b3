package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/console"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// consoleFlags are the flags of console.
type consoleFlags struct {
	write bool
	ttl   time.Duration
	print bool
	list  bool
	end   string
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
port first: ssh -L 8080:127.0.0.1:8080 HOST

--sessions lists the open sessions, and --end ends one of them.`,
		Example: `  ronbox --data-dir data console
  ronbox --data-dir data console --write --ttl 30m
  ronbox --data-dir data console --print
  ronbox --data-dir data console --sessions --json`,
		Args: cobra.NoArgs,
		RunE: a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
			switch {
			case f.end != "":
				return a.endSession(ctx, c, f.end)
			case f.list:
				return a.sessions(ctx, c)
			}
			return a.console(ctx, c, f)
		}),
	}
	cmd.Flags().BoolVar(&f.write, "write", false, "let the session change things")
	cmd.Flags().DurationVar(&f.ttl, "ttl", console.MaxLife, "longest life of the session, a `TIME` up to 8h")
	cmd.Flags().BoolVar(&f.print, "print", false, "print the URL instead of opening a browser")
	cmd.Flags().BoolVar(&f.list, "sessions", false, "list the open sessions")
	cmd.Flags().StringVar(&f.end, "end", "", "end the session with this `id`")
	cmd.MarkFlagsMutuallyExclusive("sessions", "end", "print")
	cmd.MarkFlagsMutuallyExclusive("sessions", "end", "write")
	return cmd
}

func (a app) sessions(ctx context.Context, c nodeapi.Client) error {
	list, err := c.Sessions(ctx)
	if err != nil {
		return err
	}
	return a.Show(list, func(t cli.Table) {
		t.Row("SESSION", "ENTERED WITH", "WHO", "MAY CHANGE", "FROM", "BEGAN", "LAST REQUEST", "ENDS")
		for _, s := range list.Sessions {
			t.Row(s.ID, s.Kind, cmp.Or(s.Name, s.Who), s.Write, s.From, s.BeganAt.Format(time.RFC3339),
				s.SeenAt.Format(time.RFC3339), s.ExpiresAt.Format(time.RFC3339))
		}
	})
}

// ended is the result of console --end.
type ended struct {
	Ended string `json:"ended"`
}

func (a app) endSession(ctx context.Context, c nodeapi.Client, id string) error {
	if err := c.EndSession(ctx, id); err != nil {
		return err
	}
	return a.Show(ended{id}, func(t cli.Table) { t.Row("ended", id) })
}

// opened is the result of console.
type opened struct {
	URL       string       `json:"url"`
	ExpiresAt wire.Instant `json:"expires_at"`
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

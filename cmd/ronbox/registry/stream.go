package registry

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

type streamFlags struct {
	after string // Last-Event-ID
	count int    // updates after which the stream ends, 0: never
	tries int
}

func (a app) streamCmd() *cobra.Command {
	var f streamFlags
	cmd := &cobra.Command{
		Use:     "stream",
		Example: `  ronbox registry stream --last-event-id 1 --json   # everything since version 1, then what comes`,
		Short:   "Follow the registry: one line per version, resumed when the connection breaks",
		Long: `Follow the registry: one line per version as it is committed, until Ctrl-C. A broken
connection is resumed without a gap. A reader that falls too far behind gets a line with
the versions that it missed.`,
	}
	cmd.Flags().StringVar(&f.after, "last-event-id", "", "begin after version `N` instead of at HEAD")
	cmd.Flags().IntVar(&f.count, "count", 0, "end after `N` versions")
	cmd.Flags().
		IntVar(&f.tries, "tries", 0, "give up after `N` connections in a row without an event (default never)")
	cmd.RunE = a.online(
		func(ctx context.Context, c registryapi.Client, _ []string) error { return a.stream(ctx, c, f) },
	)
	return cmd
}

func (a app) stream(ctx context.Context, c registryapi.Client, f streamFlags) error {
	if f.after != "" {
		if _, err := versionArg(f.after, 0); err != nil {
			return err
		}
	}
	if f.count < 0 || f.tries < 0 {
		return cli.Usage("--count %d --tries %d: want numbers from 0", f.count, f.tries)
	}
	seen := 0
	err := c.Stream(ctx, a.Following(f.after, f.tries), func(e client.Event) error {
		if err := a.printEvent(e); err != nil {
			return err
		}
		if e.Name == registryapi.EventUpdate {
			seen++
		}
		if f.count > 0 && seen >= f.count {
			return client.ErrStop
		}
		return nil
	})
	return cli.UntilCtrlC(ctx, err)
}

// printEvent prints one event at once, without a table, which would wait for all events.
func (a app) printEvent(e client.Event) error {
	if a.Flags.JSON {
		return a.PrintJSON(struct {
			Event string         `json:"event"`
			ID    string         `json:"id,omitzero"`
			Data  jsontext.Value `json:"data"`
		}{e.Name, e.ID, e.Data})
	}
	if a.Flags.Quiet {
		return nil
	}
	line, err := streamText(e)
	if err != nil {
		return fmt.Errorf("event %s: %w", e.Name, err)
	}
	return a.Print([]byte(cli.Plain(line) + "\n"))
}

func streamText(e client.Event) (string, error) {
	switch e.Name {
	case wire.EventHello:
		var h registryapi.Hello
		err := json.Unmarshal(e.Data, &h)
		return "following from " + HeadLine(h.Head), err
	case registryapi.EventUpdate:
		var u registryapi.Update
		err := json.Unmarshal(e.Data, &u)
		return fmt.Sprintf("version %-6d %s  %s  %s", u.Version, u.CommittedAt, u.Kind,
			cli.ShortHash(u.PayloadB3.String())), err
	case wire.EventLagged:
		var l registryapi.Lagged
		err := json.Unmarshal(e.Data, &l)
		return fmt.Sprintf("missed %d versions, %d to %d: `ronbox registry diff` shows them; HEAD is %s", l.Missed,
			l.From, l.To, HeadLine(l.Head)), err
	case wire.EventShutdown:
		return "the node is shutting down", nil
	}
	return e.Name + "  " + string(e.Data), nil
}

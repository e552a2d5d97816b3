package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ronbox/httpapi/client"
)

const (
	completeWait = 300 * time.Millisecond // a person has pressed a key and waits

	// MostNames bounds the names that a shell is offered.
	MostNames = 100
)

// Names asks the node for names that begin with typed, at most MostNames. Others may be among them.
type Names func(ctx context.Context, c *client.Client, typed string) ([]string, error)

type directive = cobra.ShellCompDirective

// Complete lets a shell complete the arguments and the flags of group, whose placeholders in the
// usage are the keys of names. If names has nil for a placeholder, nothing is offered; if it does
// not have it, files are.
func (a *App) Complete(group *cobra.Command, names map[string]Names) {
	for _, verb := range group.Commands() {
		a.Complete(verb, names)
	}
	words := placeholders(group.Use)
	if len(words) > 0 && group.ValidArgs == nil {
		group.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, directive) {
			if len(args) >= len(words) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ask, known := names[words[len(args)]]
			if !known {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.offer(cmd, ask, typed)
		}
	}
	group.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		word, _ := pflag.UnquoteUsage(f)
		ask := names[strings.ToUpper(word)]
		if ask == nil {
			return
		}
		err := group.RegisterFlagCompletionFunc(f.Name,
			func(cmd *cobra.Command, _ []string, typed string) ([]string, directive) {
				return a.offer(cmd, ask, typed)
			})
		if err != nil {
			panic(err) // it has one already
		}
	})
}

// placeholders returns the arguments in the usage of a verb, in order.
func placeholders(use string) (words []string) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "--") {
			break
		}
		words = append(words, strings.Trim(word, "[]…"))
	}
	return words
}

// offer returns what ask finds. If the node does not answer, or refuses, it returns nothing and
// says nothing: the person is typing.
func (a *App) offer(cmd *cobra.Command, ask Names, typed string) (out []string, _ directive) {
	const only = cobra.ShellCompDirectiveNoFileComp
	if ask == nil || a.Flags.PrintCurl {
		return nil, only
	}
	c, err := a.Client()
	if err != nil {
		return nil, only
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	found, err := ask(ctx, c, typed)
	if err != nil {
		return nil, only
	}
	for _, name := range found {
		if strings.HasPrefix(name, typed) && len(out) < MostNames {
			out = append(out, name)
		}
	}
	return out, only
}

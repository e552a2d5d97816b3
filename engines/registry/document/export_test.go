package document

// Reasons returns the reasons of all refusals.
func Reasons() (all []string) {
	for _, row := range reasons {
		all = append(all, row.reason)
	}
	return all
}

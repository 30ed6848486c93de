package tui

// newViews makes the views in the order of their digits.
func newViews() []view {
	return []view{newFleet(), newStreams(), newWhatIf(), newFindings()}
}

// follow tells the view that is shown about another snapshot, if it wants to
// know.
func (m *model) follow() effect {
	if f, ok := m.view().(follower); ok {
		return f.follow(m.scene())
	}
	return effect{}
}

package repo

// KeepReserve keeps a little space of the disk of a folder aside, for [UseReserve].
func KeepReserve(r *Repo) {
	if r.stores.folder != "" && !r.stores.overlaid {
		r.stores.files.KeepReserve()
	}
}

// UseReserve gives the space back to the disk, and reports whether there was any since [KeepReserve].
func UseReserve(r *Repo) bool {
	return r.stores.folder != "" && !r.stores.overlaid && r.stores.files.UseReserve()
}

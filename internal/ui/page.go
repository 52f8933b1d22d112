package ui

import (
	"cmp"
	"e3/internal/human"
	h "e3/internal/insight/markup"
)

// body is what a page shows between its head and its foot.
type body interface {
	// page draws the body; f is the page around it.
	page(f *frame) h.Node
}

// write returns the page with a body. The body comes first: it may need a module in the head.
func (f *frame) write(b body) []byte { return h.HTML(f.document(b.page(f))) }

// document is the whole page around its main part.
func (f *frame) document(main h.Node) h.Node {
	return h.El("html", h.Attr("lang", "en"),
		h.El("head", f.metas(), h.El("title", h.Text(f.Title+" · e3")), f.styles()),
		h.El("body",
			h.El("a.skip", h.Attr("href", "#main"), h.Text("Skip to the content")),
			f.top(), navigation("tabs", "Workspace", f.Nav), f.main(main), f.foot()))
}

func (f *frame) metas() h.Node {
	named := func(name, content string) h.Node {
		return h.El("meta", h.Attr("name", name), h.Attr("content", content))
	}
	referrer := "same-origin"
	if f.Static {
		referrer = "no-referrer"
	}
	return h.Group{
		h.El("meta", h.Attr("charset", "utf-8")),
		h.If(f.Static, h.El("meta", h.Attr("http-equiv", "Content-Security-Policy"), h.Attr("content", f.Policy))),
		named("viewport", "width=device-width, initial-scale=1"),
		named("color-scheme", "light dark"),
		named("referrer", referrer),
	}
}

// styles is the style sheet and the script: those of the server, or in a file their texts.
func (f *frame) styles() h.Node {
	if f.Static {
		return h.Group{
			h.El("style", h.Raw(f.Style)), h.If(f.Script != "", h.El("script", h.Attr("type", "module"), h.Raw(f.Script))),
		}
	}
	return h.Group{
		h.El("link", h.Attr("rel", "icon"), h.Attr("href", "/static/icon.svg"), h.Attr("type", "image/svg+xml")),
		h.El("link", h.Attr("rel", "stylesheet"), h.Attr("href", "/static/ui.css")),
		h.El("script", h.Attr("type", "module"), h.Attr("src", "/static/ui.js")),
		h.If(f.Module != "", h.El("script", h.Attr("type", "module"), h.Attr("src", "/static/"+f.Module))),
	}
}

// top is the path from the first page to this one, and the links to the places of the repository.
func (f *frame) top() h.Node {
	brand := h.Text("e3")
	if url := f.To(viewWorkspaces); url != "" {
		brand = h.El("a", h.Attr("href", url), h.Attr("aria-label", "e3, all workspaces"), brand)
	}
	crumbs := h.Map(f.Crumbs, func(c crumb) h.Node {
		if c.URL == "" {
			return h.El("li", h.El("span", h.Attr("aria-current", "page"), h.Line(c.Name)))
		}
		return h.El("li", link(c.URL, h.Line(c.Name)))
	})
	var places []tab
	for _, p := range []struct{ name, view string }{
		{"Workspaces", viewWorkspaces}, {"Experiments", viewTable}, {"Queue", viewQueue}, {"Store", viewStore},
	} {
		places = append(places, tab{p.name, at(p.view).Address(), f.Place.View == p.view})
	}
	return h.El("header.top",
		h.El("p.brand", brand),
		h.El("nav.crumbs", h.Attr("aria-label", "Breadcrumbs"), h.El("ol", crumbs)),
		h.If(!f.Static, navigation("places", "Repository", places)))
}

func (f *frame) main(body h.Node) h.Node {
	return h.El("main", h.ID("main"), h.Attr("tabindex", "-1"), h.If(f.Stream != "", h.Attr("data-stream", f.Stream)),
		body,
		h.If(len(f.Notes) > 0, h.El("section.notes", h.Attr("aria-label", "What is not shown"), items(f.Notes))))
}

func (f *frame) foot() h.Node {
	about := h.Group{h.Line(cmp.Or(f.Root, f.Repository)), h.Text(" · e3 "), h.Line(f.Version)}
	switch {
	case f.Static:
		about = append(about, h.Text(" · made on "+f.Stamp(f.Made)),
			h.If(f.Alone, h.Text(" · This page holds all that it shows and asks nothing of any network.")))
	default:
		word := "follow again"
		if f.Stream != "" {
			word = "pause"
		}
		about = append(about, h.Text(" "), h.El("span", h.ID("live"), h.Attr("role", "status"),
			h.Attr("aria-live", "polite")), h.Text(" "),
			h.If(f.Pause != "", h.El("a.pause", h.Attr("href", f.Pause), h.Text(word))))
	}
	return h.El("footer",
		h.If(f.Command != "", f.copied("On a terminal", f.Command)),
		h.El("p.about", about))
}

// fault is the page that says why a page cannot be shown.
type fault string

func (s fault) page(*frame) h.Node {
	return h.Group{
		h.El("h1", h.Text("This page is not here")),
		h.El("p.warn", h.Attr("role", "alert"), h.Line(human.Truncate(string(s), 1_000))),
	}
}

// done is the page about the result of an action.
type done string

func (s done) page(f *frame) h.Node {
	return h.Group{
		h.El("h1", h.Text(f.Title)),
		h.El("p.lead", h.Attr("role", "status"), h.Line(string(s))),
		h.El("p", link(f.To(viewRun, "w", f.Workspace), h.Text("Back to "), h.Line(f.Workspace))),
	}
}

// loginPage goes on to an address of this server.
func loginPage(next string) []byte {
	return h.HTML(h.El("html", h.Attr("lang", "en"),
		h.El("head",
			h.El("meta", h.Attr("charset", "utf-8")), h.El("title", h.Text("e3")),
			h.El("meta", h.Attr("http-equiv", "refresh"), h.Attr("content", "0;url="+next))),
		h.El("body", h.El("main", h.El("p", link(next, h.Text("Go on to e3")))))))
}

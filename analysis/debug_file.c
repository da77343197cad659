#include "analysis/debug_file.h"

#include "base/library.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is used of libdw, and of libdebuginfod where that is here. */
struct debug_library {
	struct library library;
	typeof(dwfl_begin) *begin;
	typeof(dwfl_end) *end;
	typeof(dwfl_report_begin) *report_begin;
	typeof(dwfl_report_offline) *report_offline;
	typeof(dwfl_report_end) *report_end;
	typeof(dwfl_build_id_find_elf) *find_elf;
	typeof(dwfl_standard_find_debuginfo) *find_debuginfo;
	typeof(dwfl_offline_section_address) *section_address;
	typeof(dwfl_module_build_id) *build_id;
	typeof(dwfl_module_getdwarf) *getdwarf;
	typeof(dwfl_module_getelf) *getelf;
	typeof(dwfl_module_getsymtab) *getsymtab;
	typeof(dwfl_module_getsym) *getsym;
	typeof(dwfl_module_getsrc) *getsrc;
	typeof(dwfl_lineinfo) *lineinfo;
	typeof(dwfl_module_addrdie) *addrdie;
	typeof(dwarf_getscopes) *getscopes;
	typeof(dwarf_getscopes_die) *getscopes_die;
	typeof(dwarf_tag) *tag;
	typeof(dwarf_attr_integrate) *attr_integrate;
	typeof(dwarf_attr) *attr;
	typeof(dwarf_formstring) *formstring;
	typeof(dwarf_formudata) *formudata;
	typeof(dwarf_getsrcfiles) *getsrcfiles;
	typeof(dwarf_filesrc) *filesrc;
	typeof(dwarf_decl_file) *decl_file;
	typeof(dwarf_decl_line) *decl_line;
	Dwfl_Callbacks callbacks;

	/* elfutils/debuginfod.h, which is in a package of its own. */
	struct library servers;
	bool servers_tried;
	void *(*servers_begin)(void);
	int (*servers_find)(void *client, const unsigned char *build_id, int size, char **path);
	void (*servers_end)(void *client);
};

struct debug_file {
	const struct debug_library *library;
	Dwfl *dwfl;
	Dwfl_Module *module;
	GElf_Addr bias; /* libdw's addresses are higher than the file's by it */
};

gp_status_t debug_library_open(struct debug_library **out, struct error *error)
{
	struct debug_library *self = calloc(1, sizeof(*self));
	gp_status_t status;

	if (!self)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for source lines");
	const struct library_symbol symbols[] = {
		{"dwfl_begin", &self->begin},
		{"dwfl_end", &self->end},
		{"dwfl_report_begin", &self->report_begin},
		{"dwfl_report_offline", &self->report_offline},
		{"dwfl_report_end", &self->report_end},
		{"dwfl_build_id_find_elf", &self->find_elf},
		{"dwfl_standard_find_debuginfo", &self->find_debuginfo},
		{"dwfl_offline_section_address", &self->section_address},
		{"dwfl_module_build_id", &self->build_id},
		{"dwfl_module_getdwarf", &self->getdwarf},
		{"dwfl_module_getelf", &self->getelf},
		{"dwfl_module_getsymtab", &self->getsymtab},
		{"dwfl_module_getsym", &self->getsym},
		{"dwfl_module_getsrc", &self->getsrc},
		{"dwfl_lineinfo", &self->lineinfo},
		{"dwfl_module_addrdie", &self->addrdie},
		{"dwarf_getscopes", &self->getscopes},
		{"dwarf_getscopes_die", &self->getscopes_die},
		{"dwarf_tag", &self->tag},
		{"dwarf_attr_integrate", &self->attr_integrate},
		{"dwarf_attr", &self->attr},
		{"dwarf_formstring", &self->formstring},
		{"dwarf_formudata", &self->formudata},
		{"dwarf_getsrcfiles", &self->getsrcfiles},
		{"dwarf_filesrc", &self->filesrc},
		{"dwarf_decl_file", &self->decl_file},
		{"dwarf_decl_line", &self->decl_line},
	};

	status = library_load(&self->library, "libdw.so.1", "libdw1", symbols,
			      sizeof(symbols) / sizeof(symbols[0]), error);
	if (status) {
		free(self);
		return status;
	}
	self->callbacks.find_elf = self->find_elf;
	self->callbacks.find_debuginfo = self->find_debuginfo;
	self->callbacks.section_address = self->section_address;
	*out = self;
	return GP_OK;
}

void debug_library_close(struct debug_library *self)
{
	if (!self)
		return;
	library_unload(&self->servers);
	library_unload(&self->library);
	free(self);
}

static bool debug_file_is_wanted(const struct debug_file *file, const struct build_id *build_id)
{
	const unsigned char *bytes;
	GElf_Addr address;
	int size;

	if (!build_id)
		return true;
	size = file->library->build_id(file->module, &bytes, &address);
	return size > 0 && (size_t)size == build_id->size &&
	       !memcmp(bytes, build_id->bytes, build_id->size);
}

struct debug_file *debug_file_open(struct debug_library *library, const char *path,
				   const struct build_id *build_id)
{
	struct debug_file *self;
	Dwarf_Addr bias;

	/* Most places that are tried have none. */
	if (access(path, R_OK))
		return NULL;
	self = calloc(1, sizeof(*self));
	if (!self)
		return NULL;
	self->library = library;
	self->dwfl = library->begin(&library->callbacks);
	if (self->dwfl) {
		library->report_begin(self->dwfl);
		self->module = library->report_offline(self->dwfl, path, path, -1);
		library->report_end(self->dwfl, NULL, NULL);
	}
	if (self->module && library->getelf(self->module, &self->bias) &&
	    debug_file_is_wanted(self, build_id) && library->getdwarf(self->module, &bias))
		return self;
	debug_file_close(self);
	return NULL;
}

void debug_file_close(struct debug_file *self)
{
	if (self && self->dwfl)
		self->library->end(self->dwfl);
	free(self);
}

static bool load_servers(struct debug_library *self)
{
	const struct library_symbol symbols[] = {
		{"debuginfod_begin", &self->servers_begin},
		{"debuginfod_find_debuginfo", &self->servers_find},
		{"debuginfod_end", &self->servers_end},
	};

	if (!self->servers_tried)
		library_load(&self->servers, "libdebuginfod.so.1", "libdebuginfod1", symbols,
			     sizeof(symbols) / sizeof(symbols[0]), NULL);
	self->servers_tried = true;
	return self->servers.handle;
}

char *debug_file_fetch(struct debug_library *self, const struct build_id *build_id)
{
	const char *servers = getenv("DEBUGINFOD_URLS");
	char *path = NULL;
	void *client;
	int fd;

	if (!servers || !*servers || !build_id->size || !load_servers(self))
		return NULL;
	client = self->servers_begin();
	if (!client)
		return NULL;
	fd = self->servers_find(client, build_id->bytes, (int)build_id->size, &path);
	self->servers_end(client);
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? path : NULL;
}

bool debug_file_symbol(const struct debug_file *self, const char *name, uint64_t *address)
{
	int count = self->library->getsymtab(self->module);
	bool any = false;
	uint64_t value = 0;

	for (int i = 0; i < count; i++) {
		GElf_Sym symbol;
		const char *found = self->library->getsym(self->module, i, &symbol, NULL);

		if (!found || symbol.st_shndx == SHN_UNDEF || strcmp(found, name))
			continue;
		if (any && value != symbol.st_value)
			return false;
		value = symbol.st_value;
		any = true;
	}
	if (any)
		*address = value - self->bias;
	return any;
}

static const char *die_name(const struct debug_library *library, Dwarf_Die *die)
{
	Dwarf_Attribute attribute;

	return library->formstring(library->attr_integrate(die, DW_AT_name, &attribute));
}

static unsigned number_of(const struct debug_library *library, Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	return library->formudata(library->attr(die, name, &attribute), &value) ? 0
										: (unsigned)value;
}

/* Where an inlined function was called. */
static struct source_frame call_of(const struct debug_library *library, Dwarf_Die *unit,
				   Dwarf_Die *die)
{
	unsigned file = number_of(library, die, DW_AT_call_file);
	struct source_frame frame = {.line = number_of(library, die, DW_AT_call_line)};
	Dwarf_Files *files;
	size_t count;

	if (!library->getsrcfiles(unit, &files, &count) && file < count)
		frame.file = library->filesrc(files, file, NULL, NULL);
	return frame;
}

/* Where a function begins, if that is in the file of its `place`. */
static unsigned begin_of(const struct debug_library *library, Dwarf_Die *function,
			 const struct source_frame *place)
{
	const char *file = library->decl_file(function);
	int line;

	if (!file || !place->file || strcmp(file, place->file) ||
	    library->decl_line(function, &line) || line < 0)
		return 0;
	return (unsigned)line;
}

size_t debug_file_find(struct debug_file *self, uint64_t address,
		       struct source_frame out[SOURCE_FRAMES_MAX])
{
	const struct debug_library *library = self->library;
	GElf_Addr at = address + self->bias;
	Dwfl_Line *line = library->getsrc(self->module, at);
	Dwarf_Die *unit, *scopes = NULL, *chain = NULL;
	struct source_frame here = {0};
	Dwarf_Addr bias;
	size_t count = 0;
	int depth = 0, number = 0;

	if (line)
		here.file = library->lineinfo(line, NULL, &number, NULL, NULL, NULL);
	here.line = number > 0 ? (unsigned)number : 0;
	unit = library->addrdie(self->module, at, &bias);
	/* The innermost scope of the address, then the scopes that this one really lies in: those
	 * of an inlined function are where it was inlined, not where it is defined. */
	if (unit && library->getscopes(unit, at - bias, &scopes) > 0)
		depth = library->getscopes_die(&scopes[0], &chain);
	for (int i = 0; i < depth && count < SOURCE_FRAMES_MAX - 1; i++) {
		int tag = library->tag(&chain[i]);

		if (tag == DW_TAG_subprogram) {
			here.begin = begin_of(library, &chain[i], &here);
			break;
		}
		if (tag != DW_TAG_inlined_subroutine)
			continue;
		out[count] = here;
		out[count].function = die_name(library, &chain[i]);
		if (!out[count].function)
			out[count].function = "[inlined]";
		out[count].begin = begin_of(library, &chain[i], &here);
		count++;
		here = call_of(library, unit, &chain[i]);
	}
	free(scopes);
	free(chain);
	if (here.file || count)
		out[count++] = here;
	return count;
}

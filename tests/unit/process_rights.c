/* Why one process may not look into another, in a /proc that is made for it. */
#include "attach/process_rights.h"
#include "tests/unit/fake_proc.h"

TestSuite(process_rights, .init = make_root, .fini = remove_root);

#define OWN_USER "user:[4026531837]"
#define PTRACE (UINT64_C(1) << 19)

struct setting {
	const char *scope; /* of Yama; NULL: a kernel without */
	uint64_t capabilities;
	const char *user_namespace;
	unsigned uid, gid; /* of the other process */
	uint64_t its_capabilities;
	bool undumpable;
};

static const char *advice(struct setting setting)
{
	static char text[256];
	char name[100], status[256];

	make_directory("self");
	make_directory("self/ns");
	make_link("self/ns/user", setting.user_namespace ? setting.user_namespace : OWN_USER);
	if (setting.scope) {
		make_directory("sys");
		make_directory("sys/kernel");
		make_directory("sys/kernel/yama");
		make_file("sys/kernel/yama/ptrace_scope", setting.scope, strlen(setting.scope));
	}
	snprintf(name, sizeof(name), "%d", (int)getpid());
	make_directory(name);
	snprintf(name, sizeof(name), "%d/status", (int)getpid());
	snprintf(status, sizeof(status), "CapInh:\t0\nCapPrm:\t%016llx\nCapEff:\t%016llx\n",
		 (unsigned long long)setting.capabilities,
		 (unsigned long long)setting.capabilities);
	make_file(name, status, strlen(status));
	/* One that can be no process of this host: beyond the most of PIDs. */
	make_directory("5000000");
	snprintf(
		status, sizeof(status),
		"Name:\tUid: 1 1 1\nUid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\nCapPrm:\t%016llx\n",
		geteuid(), setting.uid, geteuid(), geteuid(), getegid(), getegid(), setting.gid,
		getegid(), (unsigned long long)setting.its_capabilities);
	make_file("5000000/status", status, strlen(status));
	if (setting.undumpable) {
		snprintf(name, sizeof(name), "%s/5000000/status", root);
		if (chown(name, geteuid() + 1, (gid_t)-1))
			cr_skip_test("only root can give a file away");
	}
	process_rights(root, 5000000, text, sizeof(text));
	remove_root();
	cr_assert(!mkdir(root, 0755));
	return text;
}

static void says(const char *wanted, struct setting setting)
{
	const char *text = advice(setting);

	cr_assert(strstr(text, wanted), "'%s' is not in '%s'", wanted, text);
}

#define SAME .uid = geteuid(), .gid = getegid()

Test(process_rights, what_is_missing_is_named)
{
	says("another user's (uid 4242)", (struct setting){.uid = 4242, .gid = getegid()});
	says("another group (gid 4243)", (struct setting){.uid = geteuid(), .gid = 4243});
	says("has capabilities that this user lacks",
	     (struct setting){SAME, .its_capabilities = 1, .capabilities = 2});
	says("be its user, or root",
	     (struct setting){SAME, .its_capabilities = 2, .capabilities = 2});
}

Test(process_rights, yama_is_named_with_its_scope)
{
	says("be its user, or root", (struct setting){SAME, .scope = "0\n"});
	says("ptrace_scope is 1: only root", (struct setting){SAME, .scope = "1\n"});
	says("ptrace_scope is 2: only root", (struct setting){SAME, .scope = "2\n"});
	/* Changing the scope would not help. */
	says("another user's", (struct setting){.uid = 4242, .gid = getegid(), .scope = "1\n"});
	says("nobody may", (struct setting){SAME, .scope = "3\n", .capabilities = PTRACE});
}

Test(process_rights, a_capability_that_does_not_reach_the_process_is_told)
{
	says("user namespace",
	     (struct setting){SAME, .capabilities = PTRACE, .user_namespace = "user:[4026532999]"});
	says("security module", (struct setting){SAME, .capabilities = PTRACE, .scope = "1\n"});
}

Test(process_rights, a_process_that_must_not_be_dumped_is_told)
{
	says("PR_SET_DUMPABLE", (struct setting){SAME, .undumpable = true});
}

Test(process_rights, a_process_that_is_gone_is_no_trouble)
{
	char text[256];

	process_rights(root, 5000001, text, sizeof(text));
	cr_assert(*text);
}

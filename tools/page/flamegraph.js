const profile = new Profile(JSON.parse(element("data").textContent));
const explorer = new Explorer(profile);
explorer.start();
/* For a person at the browser's console, and for the tests. */
window.guestprof = {profile, explorer};

// Shared by the clients beside this file: test_npm.py calls each with the server's URL, its key and the model's name.
export const [url, key, model] = process.argv.slice(2);

// Runs one check; test_npm.py counts the lines that begin with "ok".
export async function check(name, run) {
  await run();
  console.log(`ok ${name}`);
}

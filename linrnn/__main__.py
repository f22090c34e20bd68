from linrnn.cli.app import main

main()
